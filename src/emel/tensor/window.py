"""The streaming window: a ring of slots that the units of a model pass through, read ahead of their use.

1. Bind opens the files, starts the read lanes and fills the ring. A layout without streamed units needs no window.
2. Acquire publishes a unit in a slot, valid until the next Acquire. It is there already; or it is being read and the
   dispatch waits for that slot's source; or it is read first. A read that fails is repeated once, then the request
   fails and the window stays usable.
3. After each Acquire the units that come next are read into the slots that are free, across the end of the order too.
4. A completion says which load it is of (its ticket): one of a load that nobody waits for any more changes nothing.
5. Unbind cancels and joins the loads in flight.
What is refused or failed leaves its reason in `context.error`. The machine runs under the external-completion policy:
only the thread that dispatches touches it. Which unit is in which slot is kept by emel.tensor.ring, what is open and
being read by emel.tensor.window_reads.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING

from emel.io.errors import SourceError
from emel.io.lanes import LaneCalls
from emel.io.platform import SYSTEM, Platform
from emel.lazy_dataclasses import dataclass
from emel.sm import CoMachine, Row
from emel.sm.external import ExternalCompletionPolicy, SourceFired
from emel.tensor.ring import Ring, Slot, SlotState
from emel.tensor.window_layout import ALIGNMENT, MAX_SLOTS, WindowError, WindowLayout
from emel.tensor.window_reads import WindowReads

if TYPE_CHECKING:
    from emel.io.parts import FilePart

MIN_CHUNK, MAX_CHUNK = 1 << 16, 16 << 20


class State(Enum):
    """Where a window stands."""

    UNBOUND = "unbound"
    OPENED = "opened"
    STARTED = "started"
    RESIDENT = "resident"
    STREAMING = "streaming"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Bind:
    """Stream `layout`, of the files `parts`, through the `n_bytes` of memory at `address`."""

    parts: tuple[FilePart, ...]
    layout: WindowLayout
    address: int
    n_bytes: int
    chunk_bytes: int = 1 << 20
    is_direct: bool = False


@dataclass(frozen=True, slots=True)
class Acquire:
    """Publish a streamed unit, by its index among all units."""

    unit: int


@dataclass(frozen=True, slots=True)
class Unbind:
    """Stop reading and give the files up."""


@dataclass(slots=True)
class WindowContext:
    """The ring, what was published last, how the last request ended, and what happened so far."""

    policy: ExternalCompletionPolicy
    platform: Platform = field(default_factory=lambda: SYSTEM)
    calls: LaneCalls = field(default_factory=LaneCalls)
    bound: Bind | None = None
    reads: WindowReads | None = None
    ring: Ring = field(default_factory=Ring)
    wanted: int = -1  # the unit
    may_repeat: bool = False  # the read of the wanted unit
    error: Exception | None = None
    n_waits: int = 0
    n_repeats: int = 0
    n_stray: int = 0

    @property
    def layout(self) -> WindowLayout:
        """The layout that is bound."""
        assert self.bound is not None
        return self.bound.layout


# ---- guards --------------------------------------------------------------------------------------


def layout_fault(event: Bind) -> str:
    """What keeps a layout from being bound, in words; empty when nothing does."""
    if not MIN_CHUNK <= event.chunk_bytes <= MAX_CHUNK:
        return f"a chunk of {event.chunk_bytes} bytes: {MIN_CHUNK} to {MAX_CHUNK} are allowed"
    if event.layout.n_slots > MAX_SLOTS:
        return f"a window of {event.layout.n_slots} slots: at most {MAX_SLOTS} are allowed"
    if event.address % ALIGNMENT:
        return f"the slots at address {event.address:#x} are not aligned to {ALIGNMENT} bytes"
    if event.n_bytes < event.layout.arena_bytes:
        return f"the slots have {event.n_bytes} bytes of memory: {event.layout.arena_bytes} are needed"
    return ""


def is_unsound(_context: WindowContext, event: Bind) -> bool:
    """The layout cannot be bound as it is."""
    return bool(layout_fault(event))


def fits_memory(_context: WindowContext, event: Bind) -> bool:
    """Nothing is streamed."""
    return event.layout.is_resident


def has_failed(context: WindowContext, _event: Bind) -> bool:
    """The last effect left an error."""
    return context.error is not None


def is_outside(context: WindowContext, event: Acquire) -> bool:
    """The unit is none of the streamed ones."""
    assert context.reads is not None
    return not context.reads.has(event.unit)


def is_loaded(context: WindowContext, event: Acquire) -> bool:
    """The unit is in a slot."""
    return context.ring.state_of(event.unit) is SlotState.LOADED


def is_loading(context: WindowContext, event: Acquire) -> bool:
    """The unit is being read."""
    return context.ring.state_of(event.unit) is SlotState.LOADING


def is_stray(context: WindowContext, event: SourceFired) -> bool:
    """The completion is not that of the load its slot is waiting for."""
    assert context.reads is not None
    if event.source_index >= len(context.ring.slots):
        return True
    slot = context.ring.slots[event.source_index]
    return slot.state is not SlotState.LOADING or context.reads.ticket_of(event.source_index) != slot.ticket


def is_other(context: WindowContext, event: SourceFired) -> bool:
    """The completion is of a unit that nobody waits for."""
    return context.ring.slots[event.source_index].unit != context.wanted


def has_arrived(context: WindowContext, event: SourceFired) -> bool:
    """The wanted unit was read."""
    return _error_of(context, event) is None


def may_repeat(context: WindowContext, _event: SourceFired) -> bool:
    """The read failed for the first time since the unit was asked for."""
    return context.may_repeat


def can_read_ahead(context: WindowContext, _event: object) -> bool:
    """A unit that comes next is in no slot, and a slot is free for it."""
    return context.ring.next_load() is not None


def can_load_wanted(context: WindowContext, _event: object) -> bool:
    """The wanted unit is in no slot, and one is free."""
    ring = context.ring
    return context.wanted >= 0 and ring.slot_of(context.wanted) is None and ring.free_slot() is not None


# ---- effects -------------------------------------------------------------------------------------


def open_files(context: WindowContext, event: Bind) -> None:
    """Opens the files; past the page cache where that is asked for and can be had."""
    context.error = None
    try:
        context.reads = WindowReads(context.platform, event.parts, is_direct=event.is_direct)
    except SourceError as error:
        context.error = error


def start_lanes(context: WindowContext, event: Bind) -> None:
    """Starts the lanes over an empty ring."""
    assert context.reads is not None
    layout = event.layout
    context.bound, context.wanted = event, -1
    context.ring = Ring(layout.streamed, [Slot() for _ in range(layout.n_slots)])
    try:
        context.reads.start(context.policy, layout, event.address, chunk_bytes=event.chunk_bytes, calls=context.calls)
    except (RuntimeError, ValueError) as error:
        context.error = error


def note_resident(context: WindowContext, event: Bind) -> None:
    """Nothing to do: everything is in memory."""
    context.bound, context.error = event, None


def read_ahead(context: WindowContext, _event: object) -> None:
    """Starts reading the unit that comes next."""
    found = context.ring.next_load()
    assert found is not None
    _load(context, *found, is_urgent=False)


def publish(context: WindowContext, event: Acquire) -> None:
    """The unit is there."""
    _publish(context, event.unit)


def await_load(context: WindowContext, event: Acquire) -> None:
    """Has the dispatch wait for the read that is under way."""
    index = context.ring.slot_of(event.unit)
    assert index is not None
    _want(context, event.unit, may_repeat=True)
    context.policy.require(index)


def want(context: WindowContext, event: Acquire) -> None:
    """Notes a unit that is in no slot, or whose read failed before: then only one more is tried."""
    failed = context.ring.slot_of(event.unit)
    _want(context, event.unit, may_repeat=failed is None)
    if failed is not None:
        context.ring.slots[failed] = Slot()
    if context.ring.free_slot() is None:  # an interrupt left the published slot to a read
        context.policy.require(0)


def load_wanted(context: WindowContext, _event: object) -> None:
    """Reads the wanted unit before all others and has the dispatch wait for it."""
    index = context.ring.free_slot()
    assert index is not None
    _load(context, context.wanted, index, is_urgent=True)
    context.policy.require(index)


def publish_wanted(context: WindowContext, event: SourceFired) -> None:
    """What was waited for is there."""
    context.ring.slots[event.source_index].state = SlotState.LOADED
    _publish(context, context.wanted)


def commit(context: WindowContext, event: SourceFired) -> None:
    """Notes how a read ended."""
    has_failed_ = _error_of(context, event) is not None
    context.ring.slots[event.source_index].state = SlotState.FAILED if has_failed_ else SlotState.LOADED


def repeat_load(context: WindowContext, event: SourceFired) -> None:
    """Reads the wanted unit once more."""
    context.may_repeat = False
    context.n_repeats += 1
    _load(context, context.wanted, event.source_index, is_urgent=True)
    context.policy.require(event.source_index)


def give_up(context: WindowContext, event: SourceFired) -> None:
    """The request fails with what the read reported."""
    context.ring.slots[event.source_index].state = SlotState.FAILED
    context.error = _error_of(context, event)
    context.wanted = -1


def note_stray(context: WindowContext, _event: SourceFired) -> None:
    """Counts a completion that belongs to nothing."""
    context.n_stray += 1


def unbind(context: WindowContext, _event: Unbind) -> None:
    """Cancels and joins what is being read, and gives the files up."""
    context.error = None
    _close_reads(context)
    for index in range(len(context.ring.slots)):
        context.policy.disarm(index)
    context.ring = Ring()


def close_files(context: WindowContext, _event: Bind) -> None:
    """Gives up what a failed Bind had opened."""
    context.ring = Ring()
    _close_reads(context)


def refuse_layout(context: WindowContext, event: Bind) -> None:
    """Says what is wrong with the layout."""
    context.error = WindowError(layout_fault(event))


def refuse_second(context: WindowContext, _event: Bind) -> None:
    """One file at a time."""
    context.error = WindowError("the window is bound already: unbind it first")


def refuse_unit(context: WindowContext, event: Acquire) -> None:
    """There is no such streamed unit."""
    context.error = WindowError(f"unit {event.unit} is not streamed: {len(context.layout.streamed)} others are")


def refuse_unbound(context: WindowContext, _event: object) -> None:
    """There is nothing to acquire from or to unbind."""
    context.error = WindowError("the window is not bound: bind it first")


def refuse_resident(context: WindowContext, _event: Acquire) -> None:
    """Everything is in memory."""
    context.error = WindowError("the window streams nothing: everything is in memory")


def _error_of(context: WindowContext, event: SourceFired) -> SourceError | None:
    assert context.reads is not None
    return context.reads.error_of(event.source_index)


def _publish(context: WindowContext, unit: int) -> None:
    context.ring.published = context.ring.slot_of(unit)
    context.ring.last_unit = unit
    context.wanted = -1
    context.error = None


def _want(context: WindowContext, unit: int, *, may_repeat: bool) -> None:
    context.wanted, context.may_repeat, context.error = unit, may_repeat, None
    context.ring.published = None  # its view ended with this Acquire
    context.ring.last_unit = unit
    context.n_waits += 1


def _load(context: WindowContext, unit: int, index: int, *, is_urgent: bool) -> None:
    """Arms the slot's source and submits the read; a refused one completes at once, as failed."""
    assert context.reads is not None
    ticket = context.reads.next_ticket(index)
    context.ring.slots[index] = Slot(SlotState.LOADING, unit, ticket)
    context.policy.arm(index)
    if context.reads.submit(ticket, unit, is_urgent=is_urgent) is not None:
        context.policy.fire(index)


def _close_reads(context: WindowContext) -> None:
    reads, context.reads, context.bound = context.reads, None, None
    if reads is not None:
        reads.close()


class WindowMachine(CoMachine[State, WindowContext]):
    """Has the weights of a model pass through slots of memory; its policy is the one of its context."""

    INITIAL = State.UNBOUND
    # fmt: off
    TABLE = (
        #   source           event        guard           effect           destination
        Row(State.UNBOUND,   Bind,        is_unsound,     refuse_layout,   State.UNBOUND),
        Row(State.UNBOUND,   Bind,        fits_memory,    note_resident,   State.RESIDENT),
        Row(State.UNBOUND,   Bind,        None,           open_files,      State.OPENED),
        Row(State.UNBOUND,   Acquire,     None,           refuse_unbound,  State.UNBOUND),
        Row(State.UNBOUND,   Unbind,      None,           refuse_unbound,  State.UNBOUND),
        Row(State.UNBOUND,   SourceFired, None,           note_stray,      State.UNBOUND),
        Row(State.OPENED,    None,        has_failed,     None,            State.UNBOUND),
        Row(State.OPENED,    None,        None,           start_lanes,     State.STARTED),
        Row(State.STARTED,   None,        has_failed,     close_files,     State.UNBOUND),
        Row(State.STARTED,   None,        None,           None,            State.STREAMING),
        Row(State.RESIDENT,  Bind,        None,           refuse_second,   State.RESIDENT),
        Row(State.RESIDENT,  Acquire,     None,           refuse_resident, State.RESIDENT),
        Row(State.RESIDENT,  Unbind,      None,           unbind,          State.UNBOUND),
        Row(State.STREAMING, None,        can_read_ahead, read_ahead,      State.STREAMING),
        Row(State.STREAMING, Bind,        None,           refuse_second,   State.STREAMING),
        Row(State.STREAMING, Acquire,     is_outside,     refuse_unit,     State.STREAMING),
        Row(State.STREAMING, Acquire,     is_loaded,      publish,         State.STREAMING),
        Row(State.STREAMING, Acquire,     is_loading,     await_load,      State.WAITING),
        Row(State.STREAMING, Acquire,     None,           want,            State.WAITING),
        Row(State.STREAMING, SourceFired, is_stray,       note_stray,      State.STREAMING),
        Row(State.STREAMING, SourceFired, None,           commit,          State.STREAMING),
        Row(State.STREAMING, Unbind,      None,           unbind,          State.UNBOUND),
        Row(State.WAITING,   None,        can_load_wanted, load_wanted,    State.WAITING),
        # Between a wait and its end lies another Acquire only when an interrupt broke the wait off.
        Row(State.WAITING,   Acquire,     is_outside,     refuse_unit,     State.STREAMING),
        Row(State.WAITING,   Acquire,     is_loaded,      publish,         State.STREAMING),
        Row(State.WAITING,   Acquire,     is_loading,     await_load,      State.WAITING),
        Row(State.WAITING,   Acquire,     None,           want,            State.WAITING),
        Row(State.WAITING,   SourceFired, is_stray,       note_stray,      State.WAITING),
        Row(State.WAITING,   SourceFired, is_other,       commit,          State.WAITING),
        Row(State.WAITING,   SourceFired, has_arrived,    publish_wanted,  State.STREAMING),
        Row(State.WAITING,   SourceFired, may_repeat,     repeat_load,     State.WAITING),
        Row(State.WAITING,   SourceFired, None,           give_up,         State.STREAMING),
        Row(State.WAITING,   Unbind,      None,           unbind,          State.UNBOUND),
    )
    # fmt: on
