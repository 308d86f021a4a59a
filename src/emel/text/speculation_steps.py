"""What the steps of a wave do about drafts: give them to its lanes, and take them back when there is no room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.text.generator import State
from emel.text.speculation import MIN_GAIN, share_rows

if TYPE_CHECKING:
    from emel.text.generator import GeneratorContext
    from emel.text.lanes import Lane
    from emel.text.wavefront import Step, WaveContext


def plan_drafts(context: WaveContext) -> None:
    """Gives drafts to lanes of a planned step: as many rows as pay, and as fit the batch.

    What pays is judged as if the step read no prompts: they make it longer, and a row of a draft no dearer. Beside them
    drafts get what time prompts leave.
    """
    assert context.costs is not None
    capacity, lanes = context.batch.capacity, context.step_lanes
    n_rows = sum(lane.generator.context.n_step for lane in lanes)
    n_most = min(context.n_budget - n_rows, capacity.max_outputs - len(lanes))
    if context.n_reading:
        n_most = min(n_most, context.share.guesses(context.n_deciding, len(context.lanes), context.n_reading))
    hopeful, guess_seconds = _hopeful(lanes)
    if not hopeful:
        return
    chances = [_chances(lanes[index].generator.context, n_most) for index in hopeful]
    n_deciding = context.n_deciding
    if sum(map(sum, chances)) < (MIN_GAIN - 1) * n_deciding:  # not even if rows cost nothing
        return
    for index, n in zip(hopeful, share_rows(chances, n_most, context.costs, guess_seconds, n_deciding), strict=True):
        generator = lanes[index].generator.context
        if n and generator.speculator is not None:
            generator.draft = generator.speculator.draft(generator.ids, n)
            sequence, n_step = context.additions[index]
            context.additions[index] = sequence, n_step + len(generator.draft)
            context.n_drafted += len(generator.draft)


def plan_drafts_anew(context: WaveContext) -> None:
    """Plans drafts of lanes that are those of the last step, every one of which decodes."""
    if context.n_drafted:
        forget_drafts(context)
    plan_drafts(context)


def decides(generator: GeneratorContext) -> bool:
    """Whether the step computes the last of the ids: a token follows."""
    return len(generator.ids) - generator.n_computed == 1


def drop_drafts(context: WaveContext, _event: Step) -> None:
    """Goes without drafts in this step."""
    forget_drafts(context)


def forget_drafts(context: WaveContext) -> None:
    """Leaves each lane of the step what it has without a draft."""
    context.additions, context.n_drafted = [], 0
    for lane in context.step_lanes:
        generator = lane.generator.context
        generator.draft = []
        assert generator.sequence is not None
        context.additions.append((generator.sequence, generator.n_step))


def _hopeful(lanes: list[Lane]) -> tuple[list[int], float]:
    """The lanes of a step that have something to guess, and what the dearest guess costs. All follow their tokens."""
    hopeful, guess_seconds = [], 0.0
    for index, lane in enumerate(lanes):
        generator = lane.generator.context
        speculator = generator.speculator
        if (
            speculator is not None
            and len(generator.ids) - generator.n_computed == 1
            and speculator.follow(generator.ids)
            and lane.generator.state is State.DECODING
        ):
            hopeful.append(index)
            guess_seconds = max(guess_seconds, speculator.guess_seconds)
    return hopeful, guess_seconds


def _chances(generator: GeneratorContext, n_most: int) -> list[float]:
    """Of the guesses that may be made: no more than tokens are wanted, the context holds, or the memory forgets."""
    ids, speculator = generator.ids, generator.speculator
    assert speculator is not None
    n = min(n_most, generator.memory.n_ctx - len(ids), generator.memory.reach - 1)
    if generator.max_tokens is not None:
        n = min(n, generator.max_tokens - generator.n_tokens - 1)
    return speculator.chances(n)
