"""Lanes: what a wave knows of its requests, and how they get a lane, lose it, wait and end.

Effects of emel.text.wavefront, between two steps and at the edges of one; what happens within is in emel.text.steps.
Lanes stay in the order of their rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from emel.lazy_dataclasses import dataclass
from emel.text.generator import Admit, Cancel, Fail, Join, Preempt, State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from emel.text.generator import GeneratorMachine
    from emel.text.wavefront import MakeRoom, Shut, Step, Submit, WaveContext, Withdraw

_ADMIT, _PREEMPT, _CANCEL = Admit(), Preempt(), Cancel()


@dataclass(frozen=True, slots=True)
class WaveKey:
    """What requests must have in common to be computed in one batch."""

    model: str
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
    settle(context, lane)


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
            fail(context, lane, event.error)
            settle(context, lane)


def give_batch_away(context: WaveContext, _event: MakeRoom) -> None:
    """Who has room made for computes with the batch, so that the next step finds nothing of the last one in it."""
    context.is_steady = False


def preempt_last(context: WaveContext, _event: MakeRoom | Step) -> None:
    """The lane of highest rank gives its memory back and waits again."""
    preempt(context, max(context.lanes, key=lambda lane: lane.rank))


# ---- effects at the beginning and the end of a step


def admit_first(context: WaveContext, _event: Step) -> None:
    """The first in line gets a lane."""
    lane = context.waiting.take()
    try:
        lane.generator.dispatch(_ADMIT)
    except Exception as error:
        fail(context, lane, error)
        settle(context, lane)
        return
    _give_lane(context, [lane])


def retire(context: WaveContext, _event: Step) -> None:
    """Takes the lanes away of those that are over."""
    for lane in context.step_lanes:
        if lane.generator.context.sequence is None:
            context.lanes.remove(lane)
            context.is_steady = False
            _forget(context, lane)


# ---- what befalls a lane


def let_follow(context: WaveContext, leader: Lane) -> None:
    """Those that follow a lane fork it, as many as can; the others wait, and find its blocks later."""
    joined: list[Lane] = []
    for lane in leader.followers:
        if len(context.lanes) + len(joined) >= context.n_lanes or not context.memory.can_open():
            context.waiting.add(lane)
            continue
        try:
            lane.generator.dispatch(Join(leader.generator.context))
        except Exception as error:
            fail(context, lane, error)
        context.counters.n_generated_tokens += lane.generator.context.n_tokens
        joined.append(lane)
    leader.followers.clear()
    _give_lane(context, joined)
    context.step_lanes = [*context.step_lanes, *joined]


def preempt(context: WaveContext, lane: Lane) -> None:
    """The lane gives its memory back and waits at its rank."""
    lane.generator.dispatch(_PREEMPT)
    context.lanes.remove(lane)
    context.waiting.add(lane)
    context.counters.n_preempted += 1
    context.is_steady = False


def fail(context: WaveContext, lane: Lane, error: Exception) -> None:
    """The request ends with this error; its lane goes when the step is over, or with `settle`."""
    lane.generator.dispatch(Fail(error))
    context.failed = context.failed or lane


def settle(context: WaveContext, lane: Lane) -> None:
    """Hands out the end of a request that has no lane any more."""
    lane.publish(context.clock())
    _forget(context, lane)


# ---- inside


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
        lane.admitted(now)
        context.lanes.append(lane)
    context.lanes.sort(key=_row)
    context.is_steady = False


def _forget(context: WaveContext, lane: Lane) -> None:
    """Counts how it ended; those that followed it wait on their own, one in front of the others."""
    context.counters.count_end(lane.generator.state)
    context.suspects.pop(lane, None)
    if lane.followers:
        first, *others = lane.followers
        lane.followers.clear()
        first.followers.extend(others)
        context.waiting.add(first)
