"""What the steps of a wave do about drafts: give them to its lanes, and take them back when there is no room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.text.generator import State
from emel.text.speculation import share_rows

if TYPE_CHECKING:
    from emel.text.generator import GeneratorContext
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
    deciding = [index for index, lane in enumerate(lanes) if decides(lane.generator.context)]
    chances, guess_seconds = [], 0.0
    for index in deciding:
        generator, speculator = lanes[index].generator, lanes[index].generator.context.speculator
        is_drafted = generator.state is State.DECODING and speculator is not None
        chances.append(_chances(generator.context, n_most) if is_drafted else [])
        if speculator is not None:
            guess_seconds = max(guess_seconds, speculator.guess_seconds)
    if not any(chances):
        return
    for index, n in zip(deciding, share_rows(chances, n_most, context.costs, guess_seconds), strict=True):
        generator_context = lanes[index].generator.context
        if n and generator_context.speculator is not None:
            generator_context.draft = generator_context.speculator.draft(generator_context.ids, n)
            sequence, n_step = context.additions[index]
            context.additions[index] = sequence, n_step + len(generator_context.draft)


def decides(generator: GeneratorContext) -> bool:
    """Whether the step computes the last of the ids: a token follows."""
    return len(generator.ids) - generator.n_computed == 1


def drop_drafts(context: WaveContext, _event: Step) -> None:
    """Goes without drafts in this step."""
    context.additions = []
    for lane in context.step_lanes:
        generator = lane.generator.context
        generator.draft = []
        assert generator.sequence is not None
        context.additions.append((generator.sequence, generator.n_step))


def _chances(generator: GeneratorContext, n_most: int) -> list[float]:
    """Of the guesses that may be made: no more than tokens are wanted, the context holds, or the memory forgets."""
    ids, speculator = generator.ids, generator.speculator
    assert speculator is not None
    speculator.follow(ids)
    n = min(n_most, generator.memory.n_ctx - len(ids), generator.memory.reach - 1)
    if generator.max_tokens is not None:
        n = min(n, generator.max_tokens - generator.n_tokens - 1)
    return speculator.chances(n)
