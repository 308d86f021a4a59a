"""What a step of a wave does to its lanes: how many tokens each gets, the run, and what becomes of its result.

Every loop over lanes goes in the order of their rows: the order the native library wants, and the one in which failures
are reported, the lowest first. Who gets and loses a lane is in emel.text.lanes, drafts in emel.text.speculation_steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.batch import Outputs
from emel.kernel.sizes import KV_BLOCK
from emel.text.errors import GenerationError
from emel.text.generator import Computed
from emel.text.lanes import fail, let_follow, preempt, preempt_last, settle
from emel.text.speculation_steps import decides, plan_drafts, plan_drafts_anew

if TYPE_CHECKING:
    from emel.text.generator import GeneratorContext
    from emel.text.lanes import Lane
    from emel.text.wavefront import Step, WaveContext

_COMPUTED = Computed()


def plan_step(context: WaveContext, _event: Step) -> None:
    """How many tokens each lane gets. Where it is the same lanes again, and all decode: one, and perhaps a draft."""
    if context.is_steady:
        had_drafts = context.n_drafted > 0
        if context.can_guess:
            plan_drafts_anew(context)
        context.is_repeat = not (had_drafts or context.n_drafted)
        return
    suspect = next((lane for lane in context.lanes if lane in context.suspects), None)
    lanes = context.lanes if suspect is None else [suspect]
    context.n_deciding = n_deciding = sum(decides(lane.generator.context) for lane in lanes)
    n_budget = context.n_budget
    if 0 < n_deciding < len(lanes):
        n_budget = min(n_budget - n_deciding, context.share.tokens(n_deciding, len(lanes)))
    context.n_reading = 0
    for lane in sorted(lanes, key=lambda lane: lane.rank):
        generator = lane.generator.context
        n = 1
        if not decides(generator):
            n_left = len(generator.ids) - generator.n_computed
            n = _chunk(generator, min(n_left, n_budget - context.n_reading))
            context.n_reading += n
        generator.n_step, generator.draft = n, []
    context.step_lanes = [lane for lane in lanes if lane.generator.context.n_step]
    context.additions = [_addition(lane) for lane in context.step_lanes]
    context.is_steady, context.is_repeat = not context.n_reading and suspect is None, False
    context.n_drafted = 0
    context.can_guess = (
        context.costs is not None
        and suspect is None
        and any(lane.generator.context.speculator is not None for lane in lanes)
    )
    if context.can_guess and n_deciding:
        plan_drafts(context)


def preempt_and_plan(context: WaveContext, event: Step) -> None:
    """Plans the step again, without the lane of highest rank."""
    preempt_last(context, event)
    plan_step(context, event)


def fail_too_large(context: WaveContext, _event: Step) -> None:
    """A request that has the whole memory to itself, and not enough of it."""
    lane = context.lanes.pop()
    n, n_blocks = len(lane.generator.context.ids), context.memory.n_blocks
    message = f"{n} tokens do not fit the memory of {n_blocks * KV_BLOCK}: shorten the prompt, or load with more"
    fail(context, lane, GenerationError(message))
    settle(context, lane)
    context.is_steady = False


def advance_step(context: WaveContext, _event: Step) -> None:
    """Makes room for a token of each lane, and puts it in the place of the one before."""
    context.error = context.failed = None
    try:
        context.n_within = context.memory.advance(context.additions)
        context.batch.advance([lane.generator.context.ids[-1] for lane in context.step_lanes])
    except Exception as error:
        context.error = error


def reserve_step(context: WaveContext, _event: Step) -> None:
    """Makes room for all tokens of the step, and puts them into the batch."""
    context.error = context.failed = None
    context.n_within = 0
    batch = context.batch
    batch.clear()
    try:
        firsts = context.memory.reserve_all(context.additions)
        for lane, (sequence, n), first in zip(context.step_lanes, context.additions, firsts, strict=True):
            generator = lane.generator.context
            ids = generator.ids
            end = first + generator.n_step
            if end < len(ids):
                generator.output = -1
                batch.add(ids[first:end], first, sequence, outputs=Outputs.NONE)
            elif generator.draft:
                generator.output = batch.add([ids[first], *generator.draft], first, sequence, outputs=Outputs.ALL)
            elif n == 1:
                generator.output = batch.add_token(ids[first], first, sequence)
            else:
                generator.output = batch.add(ids[first:end], first, sequence, outputs=Outputs.LAST)
    except Exception as error:
        context.error = error


def compute(context: WaveContext, _event: Step) -> None:
    """The one run of the step."""
    begin = context.clock()
    try:
        context.graph.compute(context.batch)
    except Exception as error:
        context.error = error
    context.now = context.clock()
    if context.n_deciding and context.error is None:
        context.share.add(context.batch.n_tokens - context.n_reading, context.n_reading, context.now - begin)
    if context.costs is not None and context.can_guess and not context.n_reading:
        context.costs.add(context.batch.n_tokens, context.now - begin)
    context.counters.n_steps += 1
    context.counters.n_lanes_busy += len(context.step_lanes)


def isolate(context: WaveContext, _event: Step) -> None:
    """Takes the step back; each of its lanes runs alone until it is past this place."""
    context.counters.n_failed_steps += 1
    context.is_steady = False
    for lane in context.step_lanes:
        generator = lane.generator.context
        assert generator.sequence is not None
        context.suspects[lane] = generator.n_computed + generator.n_step
        n = context.memory.n_tokens(generator.sequence) - generator.n_computed
        if context.memory.can_rollback(generator.sequence, n):
            context.memory.rollback(generator.sequence, n)
        else:
            preempt(context, lane)


def fail_step(context: WaveContext, _event: Step) -> None:
    """The only lane of the step takes the blame."""
    context.counters.n_failed_steps += 1
    assert context.error is not None
    fail(context, context.step_lanes[0], context.error)


def sample(context: WaveContext, _event: Step) -> None:
    """Every lane takes what was computed for it, and chooses its next token."""
    counters = context.counters
    counters.n_read_tokens += context.n_reading
    for lane in context.step_lanes:
        generator = lane.generator.context
        n, n_drafted = len(generator.ids), len(generator.draft)
        if lane.followers and generator.output >= 0:
            let_follow(context, lane)
        try:
            lane.generator.dispatch(_COMPUTED)
        except Exception as error:
            fail(context, lane, error)
        counters.n_generated_tokens += len(generator.ids) - n
        if n_drafted:
            _count_draft(context, generator, n_drafted)
    if context.suspects:
        for lane in [each for each, end in context.suspects.items() if each.generator.context.n_computed >= end]:
            del context.suspects[lane]


def publish(context: WaveContext, _event: Step) -> None:
    """Hands out what is new."""
    now = context.now
    for lane in context.step_lanes:
        generator = lane.generator.context
        if generator.sequence is None or len(generator.text) > generator.n_shown:
            lane.publish(now)


# ---- inside


def _chunk(generator: GeneratorContext, n: int) -> int:
    """At most n tokens. A memory that forgets little is found again at the last border of blocks before a step's end.

    A prompt that ends at a border is never found to its end, so there the border before it gets a step's end.
    """
    end = generator.n_computed + n
    is_short = generator.memory.reach < generator.memory.n_ctx
    if is_short and n > KV_BLOCK and end == len(generator.ids) and not end % KV_BLOCK:
        return n - KV_BLOCK
    return n


def _count_draft(context: WaveContext, generator: GeneratorContext, n_drafted: int) -> None:
    generator.n_draft_tokens += n_drafted
    generator.n_accepted_tokens += generator.n_matched
    context.counters.n_drafts += 1
    context.counters.n_draft_tokens += n_drafted
    context.counters.n_accepted_tokens += generator.n_matched


def _addition(lane: Lane) -> tuple[int, int]:
    generator = lane.generator.context
    assert generator.sequence is not None
    return generator.sequence, generator.n_step
