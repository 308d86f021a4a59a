"""What the steps of a wave do to its lanes: the effects of emel.text.wavefront, and what they keep.

Every loop over lanes goes in the order of their rows: the order the native library wants, and the one in which failures
are reported, the lowest first. (Over 400 lines because the effects of one table share what is private to a wave.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from emel.graph.batch import Outputs
from emel.kernel.sizes import KV_BLOCK
from emel.text.errors import GenerationError
from emel.text.generator import Admit, Cancel, Computed, Fail, Join, Preempt, State
from emel.text.speculation_steps import plan_drafts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from emel.text.generator import GeneratorContext, GeneratorMachine
    from emel.text.wavefront import MakeRoom, Shut, Step, Submit, WaveContext, Withdraw

_ADMIT, _COMPUTED, _PREEMPT, _CANCEL = Admit(), Computed(), Preempt(), Cancel()


@dataclass(frozen=True, slots=True)
class WaveKey:
    """What requests must have in common to be computed in one batch."""

    model: str
    backend: str
    route: str
    attention: str
    outputs: str
    formats: str


class Lane(Protocol):
    """A request as the wave knows it."""

    @property
    def generator(self) -> GeneratorMachine:
        """Its machine."""

    @property
    def key(self) -> WaveKey:
        """What it can be computed together with."""

    @property
    def rank(self) -> int:
        """Its place among those that wait; the highest is preempted first."""

    @property
    def followers(self) -> list[Lane]:
        """Other completions of its prompt: they join once that is computed."""

    def admitted(self, now: float) -> None:
        """It has a lane, for the first time or again."""

    def publish(self, now: float) -> None:
        """Hands out what is new, and the end if it is over. Must not raise, nor wait for anybody."""


@dataclass(slots=True)
class WaveCounters:
    """What a wave has done so far; only ever added to.

    n_submitted = n_stopped + n_length + n_cancelled + n_failed + those that run or wait.
    """

    n_submitted: int = 0
    n_admitted: int = 0  # for the first time
    n_readmitted: int = 0
    n_preempted: int = 0
    n_stopped: int = 0
    n_length: int = 0
    n_cancelled: int = 0
    n_failed: int = 0
    n_prompt_tokens: int = 0  # of admitted requests
    n_cached_tokens: int = 0  # of them: found computed
    n_read_tokens: int = 0  # computed in chunks: prompts, and answers of preempted requests
    n_generated_tokens: int = 0
    n_drafts: int = 0
    n_draft_tokens: int = 0
    n_accepted_tokens: int = 0  # of drafts: chosen, too
    n_steps: int = 0
    n_failed_steps: int = 0
    n_lanes_busy: int = 0  # lanes, summed over steps

    def count_end(self, state: State) -> None:
        """Counts a terminal state."""
        match state:
            case State.STOPPED:
                self.n_stopped += 1
            case State.LENGTH:
                self.n_length += 1
            case State.CANCELLED:
                self.n_cancelled += 1
            case _:
                self.n_failed += 1


# ---- effects between steps


def enqueue(context: WaveContext, event: Submit) -> None:
    """Waits for a lane; those that follow it wait for its prompt."""
    context.counters.n_submitted += 1 + len(event.lane.followers)
    context.waiting.add(event.lane)


def withdraw(context: WaveContext, event: Withdraw) -> None:
    """Ends a request wherever it is."""
    lane = event.lane
    if lane.generator.is_terminal:
        return
    if lane in context.lanes:
        context.lanes.remove(lane)
        context.is_steady = False
    elif lane in context.waiting:
        context.waiting.remove(lane)
    else:
        leader = next((each for each in (*context.lanes, *context.waiting) if lane in each.followers), None)
        if leader is None:  # it never came: who submits it was interrupted
            return
        leader.followers.remove(lane)
    lane.generator.dispatch(_CANCEL)
    _settle(context, lane)


def fail_all(context: WaveContext, event: Shut) -> None:
    """Ends everything there is."""
    everyone = [*context.lanes, *context.waiting]
    context.lanes.clear()
    context.waiting.clear()
    while everyone:
        lane = everyone.pop(0)
        everyone += lane.followers
        lane.followers.clear()
        if not lane.generator.is_terminal:
            _fail(context, lane, event.error)
            _settle(context, lane)


def preempt_last(context: WaveContext, _event: MakeRoom | Step) -> None:
    """The lane of highest rank gives its memory back and waits again."""
    _preempt(context, max(context.lanes, key=lambda lane: lane.rank))


# ---- effects of a step


def admit_first(context: WaveContext, _event: Step) -> None:
    """The first in line gets a lane."""
    lane = context.waiting.take()
    try:
        lane.generator.dispatch(_ADMIT)
    except Exception as error:
        _fail(context, lane, error)
        _settle(context, lane)
        return
    _give_lane(context, [lane])


def plan_step(context: WaveContext, _event: Step) -> None:
    """How many tokens each lane gets."""
    if context.is_steady:
        return
    suspect = next((lane for lane in context.lanes if lane in context.suspects), None)
    lanes = context.lanes if suspect is None else [suspect]
    n_deciding = sum(_n_left(lane.generator.context) == 1 for lane in lanes)
    n_budget = min(context.n_budget - n_deciding, context.n_mixed) if n_deciding else context.n_budget
    context.n_reading = 0
    for lane in sorted(lanes, key=lambda lane: lane.rank):
        generator = lane.generator.context
        n_left = _n_left(generator)
        if n_left > 1:
            n_left = _chunk(generator, min(n_left, n_budget - context.n_reading), has_state=context.memory.has_state)
            context.n_reading += n_left
        generator.n_step, generator.draft = n_left, []
    context.step_lanes = [lane for lane in lanes if lane.generator.context.n_step]
    context.additions = [_addition(lane) for lane in context.step_lanes]
    context.is_steady = not context.n_reading and suspect is None
    if context.costs is not None and context.is_steady:
        plan_drafts(context)
        context.is_steady = all(lane.generator.context.speculator is None for lane in context.step_lanes)


def preempt_and_plan(context: WaveContext, event: Step) -> None:
    """Plans the step again, without the lane of highest rank."""
    preempt_last(context, event)
    plan_step(context, event)


def fail_too_large(context: WaveContext, _event: Step) -> None:
    """A request that has the whole memory to itself, and not enough of it."""
    lane = context.lanes.pop()
    n, n_blocks = len(lane.generator.context.ids), context.memory.n_blocks
    message = f"{n} tokens do not fit the memory of {n_blocks * KV_BLOCK}: shorten the prompt, or load with more"
    _fail(context, lane, GenerationError(message))
    _settle(context, lane)
    context.is_steady = False


def reserve_step(context: WaveContext, _event: Step) -> None:
    """Makes room for all tokens of the step, and puts them into the batch."""
    context.error = context.failed = None
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
    if context.costs is not None and not context.n_reading:
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
            _preempt(context, lane)


def fail_step(context: WaveContext, _event: Step) -> None:
    """The only lane of the step takes the blame."""
    context.counters.n_failed_steps += 1
    assert context.error is not None
    _fail(context, context.step_lanes[0], context.error)


def sample(context: WaveContext, _event: Step) -> None:
    """Every lane takes what was computed for it, and chooses its next token."""
    counters = context.counters
    counters.n_read_tokens += context.n_reading
    for lane in context.step_lanes:
        generator = lane.generator.context
        n, n_drafted = len(generator.ids), len(generator.draft)
        if lane.followers and generator.output >= 0:
            _let_follow(context, lane)
        try:
            lane.generator.dispatch(_COMPUTED)
        except Exception as error:
            _fail(context, lane, error)
        counters.n_generated_tokens += len(generator.ids) - n
        if n_drafted:
            _count_draft(context, generator, n_drafted)
    for lane in [each for each, end in context.suspects.items() if each.generator.context.n_computed >= end]:
        del context.suspects[lane]


def publish(context: WaveContext, _event: Step) -> None:
    """Hands out what is new."""
    now = context.now
    for lane in context.step_lanes:
        generator = lane.generator.context
        if generator.sequence is None or len(generator.text) > generator.n_shown:
            lane.publish(now)


def retire(context: WaveContext, _event: Step) -> None:
    """Takes the lanes away of those that are over."""
    over = [lane for lane in context.step_lanes if lane.generator.context.sequence is None]
    for lane in over:
        context.lanes.remove(lane)
        context.is_steady = False
        _forget(context, lane)


# ---- inside


def _n_left(generator: GeneratorContext) -> int:
    """Ids that are not computed; 1 is a lane that decodes, or the last token of a prompt."""
    return len(generator.ids) - generator.n_computed


def _chunk(generator: GeneratorContext, n: int, *, has_state: bool) -> int:
    """At most n tokens; a recurrent state can be found again only at the border of a block, so it should stop there."""
    border = (len(generator.ids) - 1) // KV_BLOCK * KV_BLOCK
    end = generator.n_computed + n
    if has_state and generator.n_computed < border:
        end = max(min(end, border) // KV_BLOCK * KV_BLOCK, generator.n_computed + min(n, 1))
    return end - generator.n_computed


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


def _row(lane: Lane) -> int:
    sequence = lane.generator.context.sequence
    return -1 if sequence is None else sequence


def _give_lane(context: WaveContext, admitted: Iterable[Lane]) -> None:
    counters, now = context.counters, context.clock()
    for lane in admitted:
        generator = lane.generator.context
        if generator.n_admissions == 1:
            counters.n_admitted += 1
            counters.n_prompt_tokens += generator.n_prompt
            counters.n_cached_tokens += generator.n_cached
        else:
            counters.n_readmitted += 1
        lane.admitted(now)
        context.lanes.append(lane)
    context.lanes.sort(key=_row)
    context.is_steady = False


def _let_follow(context: WaveContext, leader: Lane) -> None:
    """Those that follow a lane fork it, as many as can; the others wait, and find its blocks later."""
    joined: list[Lane] = []
    for lane in leader.followers:
        if len(context.lanes) + len(joined) >= context.n_lanes or not context.memory.can_open():
            context.waiting.add(lane)
            continue
        try:
            lane.generator.dispatch(Join(leader.generator.context))
        except Exception as error:
            _fail(context, lane, error)
        context.counters.n_generated_tokens += lane.generator.context.n_tokens
        joined.append(lane)
    leader.followers.clear()
    _give_lane(context, joined)
    context.step_lanes = [*context.step_lanes, *joined]


def _preempt(context: WaveContext, lane: Lane) -> None:
    lane.generator.dispatch(_PREEMPT)
    context.lanes.remove(lane)
    context.waiting.add(lane)
    context.counters.n_preempted += 1
    context.is_steady = False


def _fail(context: WaveContext, lane: Lane, error: Exception) -> None:
    lane.generator.dispatch(Fail(error))
    context.failed = context.failed or lane


def _settle(context: WaveContext, lane: Lane) -> None:
    """Hands out the end of a request that has no lane any more."""
    lane.publish(context.clock())
    _forget(context, lane)


def _forget(context: WaveContext, lane: Lane) -> None:
    """Counts how it ended; those that followed it wait on their own, one in front of the others."""
    context.counters.count_end(lane.generator.state)
    context.suspects.pop(lane, None)
    if lane.followers:
        first, *others = lane.followers
        lane.followers.clear()
        first.followers.extend(others)
        context.waiting.add(first)
