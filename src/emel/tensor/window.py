"""The streaming window: a ring of slots that the units of a model pass through, read ahead of their use.

1. Bind opens the file, starts the read lanes and fills the ring. A layout without streamed units needs no window.
2. Acquire publishes a unit in a slot, valid until the next Acquire. It is there already; or it is being read and the
   dispatch waits for that slot's source; or it is read first. A read that fails is repeated once, then the request
   fails and the window stays usable.
3. After each Acquire the units that come next are read into the slots that are free, across the end of the order too.
4. A completion says which load it is of (its ticket): one of a load that nobody waits for any more changes nothing.
5. Unbind cancels and joins the loads in flight.
What is refused or failed leaves its reason in `context.error`. The machine runs under the external-completion policy:
only the thread that dispatches touches it.

(Over 400 lines because the guards and effects of one table share the ring's bookkeeping, which nothing else may touch.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from emel.io.descriptor import OpenedFile, close_quietly, open_past_cache, open_regular
from emel.io.errors import SourceError
from emel.io.lanes import LaneCalls, Part, ReadLanes, Request
from emel.io.platform import SYSTEM, Platform
from emel.sm import CoMachine, Row
from emel.sm.external import ExternalCompletionPolicy, SourceFired
from emel.tensor.window_layout import ALIGNMENT, MAX_SLOTS, WindowError, WindowLayout, places

MIN_CHUNK, MAX_CHUNK = 1 << 16, 16 << 20


class State(Enum):
    """Where a window stands."""

    UNBOUND = "unbound"
    OPENED = "opened"
    STARTED = "started"
    RESIDENT = "resident"
    STREAMING = "streaming"
    WAITING = "waiting"


class SlotState(Enum):
    """What a slot holds."""

    VACANT = "vacant"
    LOADING = "loading"
    LOADED = "loaded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Bind:
    """Stream `layout` through the `n_bytes` of memory at `address`; the file had `file_bytes` when it was parsed."""

    path: str
    file_bytes: int
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
    """Stop reading and give the file up."""


@dataclass(slots=True)
class Slot:
    """One slot; `ticket` is that of its last load."""

    state: SlotState = SlotState.VACANT
    unit: int = -1
    ticket: int = -1


@dataclass(slots=True)
class WindowContext:
    """The ring, what was published last, how the last request ended, and what happened so far."""

    policy: ExternalCompletionPolicy
    platform: Platform = field(default_factory=lambda: SYSTEM)
    calls: LaneCalls = field(default_factory=LaneCalls)
    bound: Bind | None = None
    opened: OpenedFile | None = None
    is_direct: bool = False  # what is read goes past the page cache
    lanes: ReadLanes | None = None
    requests: dict[int, tuple[Request, ...]] = field(default_factory=dict)  # unit -> one for each slot
    slots: list[Slot] = field(default_factory=list)
    outcomes: list[tuple[int, SourceError | None]] = field(default_factory=list)  # slot -> ticket, how it ended
    published: int | None = None  # the slot
    wanted: int = -1  # the unit
    may_repeat: bool = False  # the read of the wanted unit
    last_unit: int = -1  # published last, successfully or not: what comes next is read ahead
    error: Exception | None = None
    n_loads: int = 0
    n_waits: int = 0
    n_repeats: int = 0
    n_stray: int = 0

    @property
    def layout(self) -> WindowLayout:
        """The layout that is bound."""
        assert self.bound is not None
        return self.bound.layout

    def slot_of(self, unit: int) -> int | None:
        """The slot that holds a unit, in whatever state."""
        for index, slot in enumerate(self.slots):
            if slot.unit == unit and slot.state is not SlotState.VACANT:
                return index
        return None


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
    return event.unit not in context.requests


def is_loaded(context: WindowContext, event: Acquire) -> bool:
    """The unit is in a slot."""
    index = context.slot_of(event.unit)
    return index is not None and context.slots[index].state is SlotState.LOADED


def is_loading(context: WindowContext, event: Acquire) -> bool:
    """The unit is being read."""
    index = context.slot_of(event.unit)
    return index is not None and context.slots[index].state is SlotState.LOADING


def is_stray(context: WindowContext, event: SourceFired) -> bool:
    """The completion is not that of the load its slot is waiting for."""
    if event.source_index >= len(context.slots):
        return True
    slot = context.slots[event.source_index]
    return slot.state is not SlotState.LOADING or context.outcomes[event.source_index][0] != slot.ticket


def is_other(context: WindowContext, event: SourceFired) -> bool:
    """The completion is of a unit that nobody waits for."""
    return context.slots[event.source_index].unit != context.wanted


def has_arrived(context: WindowContext, event: SourceFired) -> bool:
    """The wanted unit was read."""
    return context.outcomes[event.source_index][1] is None


def may_repeat(context: WindowContext, _event: SourceFired) -> bool:
    """The read failed for the first time since the unit was asked for."""
    return context.may_repeat


def can_read_ahead(context: WindowContext, _event: object) -> bool:
    """A unit that comes next is in no slot, and a slot is free for it."""
    return next_load(context) is not None


def can_load_wanted(context: WindowContext, _event: object) -> bool:
    """The wanted unit is in no slot, and one is free."""
    return context.wanted >= 0 and context.slot_of(context.wanted) is None and free_slot(context) is not None


def free_slot(context: WindowContext) -> int | None:
    """A slot nothing is read into; one that holds what comes next only when there is no other."""
    coming = _coming_units(context)
    free = [index for index, slot in enumerate(context.slots) if slot.state is not SlotState.LOADING]
    return min(free, key=lambda index: context.slots[index].unit in coming, default=None)


def next_load(context: WindowContext) -> tuple[int, int] | None:
    """The first unit behind the last one that no slot holds, and the slot to read it into."""
    coming = _coming_units(context)
    for unit in coming:
        if context.slot_of(unit) is None:
            for index, slot in enumerate(context.slots):
                is_needed = slot.state is not SlotState.VACANT and slot.unit in coming
                if slot.state is not SlotState.LOADING and index != context.published and not is_needed:
                    return unit, index
            return None
    return None


def _coming_units(context: WindowContext) -> list[int]:
    """The units used after the last one, as many as there are slots beside the published one."""
    streamed = context.layout.streamed
    at = streamed.index(context.last_unit) if context.last_unit >= 0 else -1
    n_ahead = min(len(context.slots) - 1, len(streamed) - 1) if at >= 0 else min(len(context.slots), len(streamed))
    return [streamed[(at + step) % len(streamed)] for step in range(1, n_ahead + 1)]


# ---- effects -------------------------------------------------------------------------------------


def open_file(context: WindowContext, event: Bind) -> None:
    """Opens the file; past the page cache where that is asked for and can be had."""
    context.error, context.is_direct = None, False
    try:
        opened = open_regular(context.platform, event.path)
    except SourceError as error:
        context.error = error
        return
    context.bound, context.opened = event, opened
    if opened.n_bytes != event.file_bytes:
        change = "shrank" if opened.n_bytes < event.file_bytes else "grew"
        context.error = SourceError(
            f"{event.path!r} {change} from {event.file_bytes} to {opened.n_bytes} bytes since it was looked at: "
            "load it again"
        )
        _close_file(context)
    elif event.is_direct:
        _open_direct(context, event)


def _open_direct(context: WindowContext, event: Bind) -> None:
    assert context.opened is not None
    direct = open_past_cache(context.platform, event.path, context.opened)
    if direct is not None:
        context.opened, context.is_direct = direct, True


def start_lanes(context: WindowContext, event: Bind) -> None:
    """Starts the lanes and lays the reads of every unit out, for each slot."""
    assert context.opened is not None
    layout, slots = event.layout, range(event.layout.n_slots)
    context.slots = [Slot() for _ in slots]
    context.outcomes = [(-1, None) for _ in slots]
    context.published, context.last_unit, context.wanted = None, -1, -1
    context.requests = {
        unit: tuple(_request(layout, unit, event.address + index * layout.slot_bytes) for index in slots)
        for unit in layout.streamed
    }
    policy, outcomes = context.policy, context.outcomes

    def deliver(ticket: int, error: SourceError | None) -> None:
        outcomes[ticket % MAX_SLOTS] = (ticket, error)
        policy.fire(ticket % MAX_SLOTS)

    try:
        context.lanes = ReadLanes(
            event.path,
            context.opened,
            deliver,
            chunk_bytes=event.chunk_bytes,
            is_direct=context.is_direct,
            calls=context.calls,
        )
    except (RuntimeError, ValueError) as error:
        context.error = error


def _request(layout: WindowLayout, unit: int, address: int) -> Request:
    return Request(
        [
            Part(extent.offset, address + place.offset, place.n_bytes, extent.rows, extent.cols, int(extent.type))
            for extent, place in sorted(
                zip(layout.units[unit], places(layout.units[unit]), strict=True), key=lambda pair: pair[0].offset
            )
        ]
    )


def note_resident(context: WindowContext, event: Bind) -> None:
    """Nothing to do: everything is in memory."""
    context.bound, context.error = event, None


def read_ahead(context: WindowContext, _event: object) -> None:
    """Starts reading the unit that comes next."""
    found = next_load(context)
    assert found is not None
    _load(context, *found, is_urgent=False)


def publish(context: WindowContext, event: Acquire) -> None:
    """The unit is there."""
    _publish(context, event.unit)


def await_load(context: WindowContext, event: Acquire) -> None:
    """Has the dispatch wait for the read that is under way."""
    index = context.slot_of(event.unit)
    assert index is not None
    _want(context, event.unit, may_repeat=True)
    context.policy.require(index)


def want(context: WindowContext, event: Acquire) -> None:
    """Notes a unit that is in no slot, or whose read failed before: then only one more is tried."""
    failed = context.slot_of(event.unit)
    _want(context, event.unit, may_repeat=failed is None)
    if failed is not None:
        context.slots[failed] = Slot()
    if free_slot(context) is None:  # an interrupt left the published slot to a read
        context.policy.require(0)


def load_wanted(context: WindowContext, _event: object) -> None:
    """Reads the wanted unit before all others and has the dispatch wait for it."""
    index = free_slot(context)
    assert index is not None
    _load(context, context.wanted, index, is_urgent=True)
    context.policy.require(index)


def publish_wanted(context: WindowContext, event: SourceFired) -> None:
    """What was waited for is there."""
    context.slots[event.source_index].state = SlotState.LOADED
    _publish(context, context.wanted)


def commit(context: WindowContext, event: SourceFired) -> None:
    """Notes how a read ended."""
    has_failed_ = context.outcomes[event.source_index][1] is not None
    context.slots[event.source_index].state = SlotState.FAILED if has_failed_ else SlotState.LOADED


def repeat_load(context: WindowContext, event: SourceFired) -> None:
    """Reads the wanted unit once more."""
    context.may_repeat = False
    context.n_repeats += 1
    _load(context, context.wanted, event.source_index, is_urgent=True)
    context.policy.require(event.source_index)


def give_up(context: WindowContext, event: SourceFired) -> None:
    """The request fails with what the read reported."""
    context.slots[event.source_index].state = SlotState.FAILED
    context.error = context.outcomes[event.source_index][1]
    context.wanted = -1


def note_stray(context: WindowContext, _event: SourceFired) -> None:
    """Counts a completion that belongs to nothing."""
    context.n_stray += 1


def unbind(context: WindowContext, _event: Unbind) -> None:
    """Cancels and joins what is being read, and gives the file up."""
    context.error = None
    if context.lanes is not None:
        context.lanes.close()
        context.lanes = None
    for index in range(len(context.slots)):
        context.policy.disarm(index)
    context.slots, context.requests, context.published = [], {}, None
    _close_file(context)


def close_file(context: WindowContext, _event: Bind) -> None:
    """Gives up what a failed Bind had opened."""
    context.slots, context.requests = [], {}
    _close_file(context)


def refuse_layout(context: WindowContext, event: Bind) -> None:
    """Says what is wrong with the layout."""
    context.error = WindowError(layout_fault(event))


def refuse_second(context: WindowContext, _event: Bind) -> None:
    """One file at a time."""
    context.error = WindowError("the window is bound already: unbind it first")


def refuse_unit(context: WindowContext, event: Acquire) -> None:
    """There is no such streamed unit."""
    context.error = WindowError(f"layer {event.unit} is not streamed: {len(context.layout.streamed)} others are")


def refuse_unbound(context: WindowContext, _event: object) -> None:
    """There is nothing to acquire from or to unbind."""
    context.error = WindowError("the window is not bound: bind it first")


def refuse_resident(context: WindowContext, _event: Acquire) -> None:
    """Everything is in memory."""
    context.error = WindowError("the window streams nothing: everything is in memory")


def _publish(context: WindowContext, unit: int) -> None:
    context.published = context.slot_of(unit)
    context.last_unit = unit
    context.wanted = -1
    context.error = None


def _want(context: WindowContext, unit: int, *, may_repeat: bool) -> None:
    context.wanted, context.may_repeat, context.error = unit, may_repeat, None
    context.published = None  # its view ended with this Acquire
    context.last_unit = unit
    context.n_waits += 1


def _load(context: WindowContext, unit: int, index: int, *, is_urgent: bool) -> None:
    """Arms the slot's source and submits the read; a refused one completes at once, as failed."""
    assert context.lanes is not None
    ticket = context.n_loads * MAX_SLOTS + index
    context.n_loads += 1
    context.slots[index] = Slot(SlotState.LOADING, unit, ticket)
    context.policy.arm(index)
    try:
        context.lanes.submit(ticket, context.requests[unit][index], is_urgent=is_urgent)
    except (RuntimeError, ValueError) as error:
        context.outcomes[index] = (ticket, SourceError(f"a read was refused: {error}"))
        context.policy.fire(index)


def _close_file(context: WindowContext) -> None:
    opened, context.opened, context.bound = context.opened, None, None
    if opened is not None:
        close_quietly(context.platform, opened.descriptor)


class WindowMachine(CoMachine[State, WindowContext]):
    """Has the weights of a model pass through slots of memory; its policy is the one of its context."""

    INITIAL = State.UNBOUND
    # fmt: off
    TABLE = (
        #   source           event        guard           effect           destination
        Row(State.UNBOUND,   Bind,        is_unsound,     refuse_layout,   State.UNBOUND),
        Row(State.UNBOUND,   Bind,        fits_memory,    note_resident,   State.RESIDENT),
        Row(State.UNBOUND,   Bind,        None,           open_file,       State.OPENED),
        Row(State.UNBOUND,   Acquire,     None,           refuse_unbound,  State.UNBOUND),
        Row(State.UNBOUND,   Unbind,      None,           refuse_unbound,  State.UNBOUND),
        Row(State.UNBOUND,   SourceFired, None,           note_stray,      State.UNBOUND),
        Row(State.OPENED,    None,        has_failed,     None,            State.UNBOUND),
        Row(State.OPENED,    None,        None,           start_lanes,     State.STARTED),
        Row(State.STARTED,   None,        has_failed,     close_file,      State.UNBOUND),
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
