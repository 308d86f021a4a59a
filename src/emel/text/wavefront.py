"""The wavefront: all requests of a model go through its steps, one alone as well as fifty.

1. Admit: the first of the waiting line, again and again, while a lane is free, the request is compatible with the lanes
   that run, and the memory holds its prompt (emel.text.waiting says who is first). None is admitted in its place.
2. Plan: every lane that decodes gets a token, and prompts get their share (emel.text.prompt_share), lowest rank first;
   the whole budget where nobody decodes. Some that decode get a draft, too (emel.text.speculation).
3. Reserve for all of them or none. When they do not fit, drafts go first. While they do not fit, the lane of highest
   rank is preempted: it gives its memory back and waits at its rank, to be computed anew. The lane of lowest rank never
   is, so there is always progress. One that does not fit alone fails.
4. Compute: one run of the reserved plan, lanes in the order of their rows.
5. Sample, publish, retire: each lane takes its row of logits. One that fails or was cancelled ends alone.
6. A run that fails for several lanes, or with drafts, says not whose fault it was: it is taken back, and each of them
   runs alone once, without a draft.

Dispatched between two steps: Submit, Withdraw, MakeRoom, Shut. Effects are in emel.text.lanes (who has a lane) and
emel.text.steps (what a step does with it).
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from emel.lazy_dataclasses import dataclass
from emel.memory.sequences import blocks_for
from emel.sm import Machine, Row
from emel.text.lanes import (
    Lane,
    WaveCounters,
    admit_first,
    enqueue,
    fail_all,
    give_batch_away,
    preempt_last,
    retire,
    withdraw,
)
from emel.text.speculation_steps import drop_drafts
from emel.text.steps import (
    advance_step,
    compute,
    fail_step,
    fail_too_large,
    isolate,
    plan_step,
    preempt_and_plan,
    publish,
    reserve_step,
    sample,
)
from emel.text.waiting import WaitingLine

if TYPE_CHECKING:
    from collections.abc import Callable

    from emel.graph.batch import Batch
    from emel.memory.sequence_memory import SequenceMemory
    from emel.text.generator import GeneratorContext
    from emel.text.prompt_share import PromptShare
    from emel.text.speculation import StepCosts


class State(Enum):
    """Where a step stands."""

    READY = "ready"
    ADMITTING = "admitting"
    PLANNED = "planned"
    RESERVED = "reserved"
    COMPUTED = "computed"
    SAMPLED = "sampled"
    PUBLISHED = "published"
    MAKING_ROOM = "making room"
    SHUT = "shut"


@dataclass(frozen=True, slots=True)
class Submit:
    """A request joins the waiting line."""

    lane: Lane


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Nobody wants a request any more; one that is over already is left alone."""

    lane: Lane


@dataclass(frozen=True, slots=True)
class Step:
    """Make one step for the lanes there are."""


@dataclass(frozen=True, slots=True)
class MakeRoom:
    """Have so many blocks free, whatever lanes must wait for it."""

    n_blocks: int


@dataclass(frozen=True, slots=True)
class Shut:
    """Fail all that is left with this error; nothing is accepted afterwards."""

    error: Exception


class Compute(Protocol):
    """Runs a batch (emel.graph.reservation.ReservedGraph)."""

    def compute(self, batch: Batch, /) -> None:
        """Raises what went wrong."""


@dataclass(slots=True)
class WaveContext:
    """The lanes, who waits, and the step that is made."""

    graph: Compute
    batch: Batch
    memory: SequenceMemory
    clock: Callable[[], float]
    n_lanes: int  # at most
    n_budget: int  # tokens of a step
    share: PromptShare  # of prompts in a step in which others decode
    costs: StepCosts | None = None  # of steps by their rows; None: no drafts
    counters: WaveCounters = field(default_factory=WaveCounters)
    waiting: WaitingLine[Lane] = field(default_factory=WaitingLine)
    lanes: list[Lane] = field(default_factory=list)  # in the order of their rows
    suspects: dict[Lane, int] = field(default_factory=dict)  # run alone until so many tokens, after a failed run
    step_lanes: list[Lane] = field(default_factory=list)
    additions: list[tuple[int, int]] = field(default_factory=list)  # (sequence, tokens) of each lane of the step
    n_deciding: int = 0  # lanes of the step whose token is the last that is known of them
    n_reading: int = 0  # tokens of the step that are read in chunks
    is_steady: bool = False  # lanes are those of the last step: every lane decodes, none came or went
    is_repeat: bool = False  # the step is the last one again, a token further: steady, and neither has drafts
    can_guess: bool = False  # a lane of the step may have drafts
    n_drafted: int = 0  # tokens of drafts of the step
    n_within: int = 0  # how often the step can be repeated before a lane needs a block
    now: float = 0.0  # when the last step was computed
    error: Exception | None = None  # of the last run
    failed: Lane | None = None  # the lowest lane that failed in the last step


# ---- guards


def is_idle(context: WaveContext, _event: Step) -> bool:
    """Nobody has a lane, and nobody can get one."""
    return not context.lanes


def can_admit(context: WaveContext, _event: Step) -> bool:
    """The first in line may have a lane."""
    return bool(context.waiting) and has_free_lane(context) and is_compatible(context) and has_memory(context)


def has_free_lane(context: WaveContext) -> bool:
    """Fewer lanes run than may, and the memory has a row for one more."""
    return len(context.lanes) < context.n_lanes and context.memory.can_open()


def is_compatible(context: WaveContext) -> bool:
    """The first in line can be computed in one batch with the lanes that run: all of them have its key."""
    return not context.lanes or context.waiting.first().key == context.lanes[0].key


def has_memory(context: WaveContext) -> bool:
    """The memory holds all of the first in line, and a block more for each lane that runs: none is preempted at once.

    An empty wave takes it in any case, and fails it if it must.
    """
    generator, memory = context.waiting.first().generator.context, context.memory
    n_spare = sum(blocks_owed(lane.generator.context) + 1 for lane in context.lanes)
    return (
        not n_spare
        or memory.free_blocks() >= blocks_for(len(generator.ids)) + n_spare
        or memory.can_open_with_prefix(generator.ids, reuse=generator.reuses_prefix, n_spare=n_spare)
    )


def blocks_owed(generator: GeneratorContext) -> int:
    """Blocks that a lane was admitted for and has not needed yet."""
    return blocks_for(len(generator.ids)) - blocks_for(generator.n_computed)


def repeats(context: WaveContext, _event: Step) -> bool:
    """The step is the last one again, a token further, and there is a block for every lane that may need one."""
    return context.is_repeat and (context.n_within > 0 or context.memory.free_blocks() >= len(context.step_lanes))


def fits_memory(context: WaveContext, _event: Step) -> bool:
    """All tokens of the step fit. A token takes at most a new block and a copy of a shared one."""
    return context.memory.can_reserve_all(context.additions)


def has_drafts(context: WaveContext, _event: Step) -> bool:
    """The step computes guesses."""
    return context.n_drafted > 0


def can_preempt(context: WaveContext, _event: Step) -> bool:
    """There is a lane besides the one of lowest rank."""
    return len(context.lanes) > 1


def has_failed_together(context: WaveContext, event: Step) -> bool:
    """What failed did so for more lanes than one, or with guesses that may be to blame."""
    return len(context.step_lanes) > 1 or has_drafts(context, event)


def is_well(context: WaveContext, _event: Step) -> bool:
    """Nothing failed so far."""
    return context.error is None


def has_room(context: WaveContext, event: MakeRoom) -> bool:
    """So many blocks are free, or no lane is left that holds any."""
    return context.memory.free_blocks() >= event.n_blocks or not context.lanes


class WavefrontMachine(Machine[State, WaveContext]):
    """Makes the steps in which all requests of a model are computed together."""

    INITIAL = State.READY
    TERMINAL = frozenset({State.SHUT})
    TABLE = (
        #   source             event     guard                effect               destination
        Row(State.READY,       Submit,   None,                enqueue,             State.READY),
        Row(State.READY,       Withdraw, None,                withdraw,            State.READY),
        Row(State.READY,       Shut,     None,                fail_all,            State.SHUT),
        Row(State.READY,       MakeRoom, None,                give_batch_away,     State.MAKING_ROOM),
        Row(State.MAKING_ROOM, None,     has_room,            None,                State.READY),
        Row(State.MAKING_ROOM, None,     None,                preempt_last,        State.MAKING_ROOM),
        Row(State.READY,       Step,     None,                None,                State.ADMITTING),
        Row(State.ADMITTING,   None,     can_admit,           admit_first,         State.ADMITTING),
        Row(State.ADMITTING,   None,     is_idle,             None,                State.READY),
        Row(State.ADMITTING,   None,     None,                plan_step,           State.PLANNED),
        Row(State.PLANNED,     None,     repeats,             advance_step,        State.RESERVED),
        Row(State.PLANNED,     None,     fits_memory,         reserve_step,        State.RESERVED),
        Row(State.PLANNED,     None,     has_drafts,          drop_drafts,         State.PLANNED),
        Row(State.PLANNED,     None,     can_preempt,         preempt_and_plan,    State.PLANNED),
        Row(State.PLANNED,     None,     None,                fail_too_large,      State.READY),
        Row(State.RESERVED,    None,     is_well,             compute,             State.COMPUTED),
        Row(State.RESERVED,    None,     has_failed_together, isolate,             State.READY),
        Row(State.RESERVED,    None,     None,                fail_step,           State.SAMPLED),
        Row(State.COMPUTED,    None,     is_well,             sample,              State.SAMPLED),
        Row(State.COMPUTED,    None,     has_failed_together, isolate,             State.READY),
        Row(State.COMPUTED,    None,     None,                fail_step,           State.SAMPLED),
        Row(State.SAMPLED,     None,     None,                publish,             State.PUBLISHED),
        Row(State.PUBLISHED,   None,     None,                retire,              State.READY),
        # A step that broke off where none should: all that can be done is to end everything.
        Row(State.MAKING_ROOM, Shut,     None,                fail_all,            State.SHUT),
        Row(State.ADMITTING,   Shut,     None,                fail_all,            State.SHUT),
        Row(State.PLANNED,     Shut,     None,                fail_all,            State.SHUT),
        Row(State.RESERVED,    Shut,     None,                fail_all,            State.SHUT),
        Row(State.COMPUTED,    Shut,     None,                fail_all,            State.SHUT),
        Row(State.SAMPLED,     Shut,     None,                fail_all,            State.SHUT),
        Row(State.PUBLISHED,   Shut,     None,                fail_all,            State.SHUT),
    )  # fmt: skip
