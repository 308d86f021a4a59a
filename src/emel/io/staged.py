"""Matrices of a model's files read through a little staging memory, and packed on the way to where they are wanted.

1. One machine reads of one model's files, any number of times; FAILED and CLOSED are final.
2. Read returns when all of it has ended. What failed is read once more; what fails again leaves its reason in
   `context.error`, and the machine stays usable.
3. Reads are those of `lanes`: four at a time, four chunks of memory, never a mapping, never a whole file.
"""

from __future__ import annotations

import threading
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING

from emel.io.errors import SourceError
from emel.io.lanes import MOST_PARTS, N_LANES, LaneCalls, Part, ReadLanes, Request
from emel.io.parts import FilePart, OpenedPart, close_parts, open_parts
from emel.io.platform import SYSTEM, Platform
from emel.lazy_dataclasses import dataclass
from emel.sm import Machine, Row

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_IN_FLIGHT = 2 * N_LANES  # requests: enough that the lanes always have a next one


@dataclass(frozen=True, slots=True)
class OpenStaged:
    """Open the files and start the lanes; chunks are read at a time, past the page cache where that can be had."""

    parts: tuple[FilePart, ...]
    chunk_bytes: int
    is_direct: bool = False


@dataclass(frozen=True, slots=True)
class ReadMatrices:
    """Read and pack these, in this order."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class CloseStaged:
    """Stop reading and give the files up."""


class StagedState(Enum):
    """IDLE -> OPENED -> STARTED -> READY -> CLOSED, or FAILED with the context's error."""

    IDLE = "idle"
    OPENED = "opened"
    STARTED = "started"
    READY = "ready"
    READ = "read"
    REPEATED = "repeated"
    FAILED = "failed"
    CLOSED = "closed"


class Arrivals:
    """How requests ended, by their tickets: told on the lanes' thread, waited for on another."""

    __slots__ = ("_arrived", "_outcomes")

    def __init__(self) -> None:
        self._outcomes: dict[int, SourceError | None] = {}
        self._arrived = threading.Semaphore(0)

    def deliver(self, ticket: int, error: SourceError | None) -> None:
        """Notes one that ended."""
        self._outcomes[ticket] = error
        self._arrived.release()

    def wait(self, ticket: int) -> SourceError | None:
        """How a request ended, once it has."""
        while ticket not in self._outcomes:
            self._arrived.acquire()
        return self._outcomes.pop(ticket)


@dataclass(slots=True)
class StagedContext:
    """The lanes; `error` says why the last event failed, None when it did not."""

    platform: Platform = field(default_factory=lambda: SYSTEM)
    calls: LaneCalls = field(default_factory=LaneCalls)
    opened: tuple[OpenedPart, ...] = ()
    lanes: ReadLanes | None = None
    arrivals: Arrivals = field(default_factory=Arrivals)
    failed: list[Request] = field(default_factory=list)  # of the last Read
    error: Exception | None = None
    n_submitted: int = 0


def has_failed(context: StagedContext, _event: object) -> bool:
    """The last effect left an error."""
    return context.error is not None


def can_repeat(context: StagedContext, _event: object) -> bool:
    """Something was read and failed; what was refused would be refused again."""
    return bool(context.failed)


def open_files(context: StagedContext, event: OpenStaged) -> None:
    """Opens the files."""
    try:
        context.opened = open_parts(context.platform, event.parts, is_direct=event.is_direct)
    except SourceError as error:
        context.error = error


def start_lanes(context: StagedContext, event: OpenStaged) -> None:
    """Starts the lanes."""
    try:
        context.lanes = ReadLanes(
            context.opened, context.arrivals.deliver, chunk_bytes=event.chunk_bytes, calls=context.calls
        )
    except (RuntimeError, ValueError) as error:
        context.error = error


def read_matrices(context: StagedContext, event: ReadMatrices) -> None:
    """Reads them, in requests of as many parts as one may have."""
    parts = event.parts
    _read(context, [Request(parts[at : at + MOST_PARTS]) for at in range(0, len(parts), MOST_PARTS)])


def read_again(context: StagedContext, _event: ReadMatrices) -> None:
    """Reads what failed."""
    _read(context, context.failed)


def close_files(context: StagedContext, _event: object) -> None:
    """Cancels and joins what is being read, and gives the files up."""
    if context.lanes is not None:
        context.lanes.close()
        context.lanes = None
    opened, context.opened = context.opened, ()
    close_parts(context.platform, opened)


def _read(context: StagedContext, requests: Sequence[Request]) -> None:
    assert context.lanes is not None
    context.error, context.failed = None, []
    first, n_waited = context.n_submitted, 0
    for request in requests:
        if context.n_submitted - first - n_waited == _MOST_IN_FLIGHT:
            _wait(context, first + n_waited, requests[n_waited])
            n_waited += 1
        try:
            context.lanes.submit(context.n_submitted, request)
        except (RuntimeError, ValueError) as error:
            context.error = context.error or error
            break
        context.n_submitted += 1
    for at in range(n_waited, context.n_submitted - first):
        _wait(context, first + at, requests[at])


def _wait(context: StagedContext, ticket: int, request: Request) -> None:
    error = context.arrivals.wait(ticket)
    if error is not None:
        context.failed.append(request)
        context.error = context.error or error


class StagedMachine(Machine[StagedState, StagedContext]):
    """Reads matrices of a model through a little staging memory; what failed is in `context.error`."""

    INITIAL = StagedState.IDLE
    TERMINAL = frozenset({StagedState.FAILED, StagedState.CLOSED})
    FAILED = frozenset({StagedState.FAILED})
    # fmt: off
    TABLE = (
        #   source                event         guard       effect         destination
        Row(StagedState.IDLE,     OpenStaged,   None,       open_files,    StagedState.OPENED),
        Row(StagedState.OPENED,   None,         has_failed, None,          StagedState.FAILED),
        Row(StagedState.OPENED,   None,         None,       start_lanes,   StagedState.STARTED),
        Row(StagedState.STARTED,  None,         has_failed, close_files,   StagedState.FAILED),
        Row(StagedState.STARTED,  None,         None,       None,          StagedState.READY),
        Row(StagedState.READY,    ReadMatrices, None,       read_matrices, StagedState.READ),
        Row(StagedState.READ,     None,         can_repeat, read_again,    StagedState.REPEATED),
        Row(StagedState.READ,     None,         None,       None,          StagedState.READY),
        Row(StagedState.REPEATED, None,         None,       None,          StagedState.READY),
        # It stands at READ when an interrupt broke the second reading off.
        Row(StagedState.READ,     ReadMatrices, None,       read_matrices, StagedState.READ),
        Row(StagedState.READ,     CloseStaged,  None,       close_files,   StagedState.CLOSED),
        Row(StagedState.READY,    CloseStaged,  None,       close_files,   StagedState.CLOSED),
    )
    # fmt: on
