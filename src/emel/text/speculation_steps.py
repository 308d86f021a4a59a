"""What the steps of a wave do about drafts: give them to its lanes, and take them back when there is no room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.text.generator import State
from emel.text.speculation import share_rows

if TYPE_CHECKING:
    from emel.text.generator import GeneratorContext
    from emel.text.wavefront import Step, WaveContext


def plan_drafts(context: WaveContext) -> None:
    """Gives drafts to the lanes of a planned step, all of which decode: as many rows as pay, and as fit the batch."""
    assert context.costs is not None
    capacity, n_lanes = context.batch.capacity, len(context.step_lanes)
    n_most = min(context.n_budget, capacity.max_outputs) - n_lanes
    lanes = [lane.generator for lane in context.step_lanes]
    chances = [
        _chances(lane.context, n_most) if lane.state is State.DECODING and lane.context.speculator is not None else []
        for lane in lanes
    ]
    speculators = [lane.context.speculator for lane in lanes]
    guess_seconds = max((each.guess_seconds for each in speculators if each is not None), default=0.0)
    for index, n in enumerate(share_rows(chances, n_most, context.costs, guess_seconds)):
        generator, speculator = lanes[index].context, speculators[index]
        if n and speculator is not None:
            generator.draft = speculator.draft(generator.ids, n)
            sequence, n_step = context.additions[index]
            context.additions[index] = sequence, n_step + len(generator.draft)


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
