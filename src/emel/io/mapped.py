"""A file's bytes as a read-only mapping: nothing is copied, pages come when they are read.

1. One machine maps one file once; FAILED, CLOSED and QUARANTINED are final.
2. The machine's own descriptor is closed as soon as the mapping holds the file.
3. Closing drops the machine's view. Views that callers still hold stay valid; the mapping goes with the last of them.
4. A mapping that the system does not take back is quarantined: kept, so that nothing else gets its addresses, and never
   read again.
5. A mapping of a file that shrinks would end the process on access (SIGBUS), so readers dispatch Verify first.
"""

from __future__ import annotations

import mmap
from dataclasses import field
from enum import Enum

from emel.io.descriptor import OpenedFile, close_quietly, open_regular, reason_of
from emel.io.errors import SourceError
from emel.io.platform import SYSTEM, Platform
from emel.lazy_dataclasses import dataclass
from emel.sm import Machine, Row


@dataclass(frozen=True, slots=True)
class OpenMapping:
    """Map the file at path."""

    path: str


@dataclass(frozen=True, slots=True)
class Advise:
    """Say how a range of bytes will be used: "sequential", "willneed" or "dontneed"."""

    advice: str
    offset: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class VerifyMapping:
    """Check that the file still has the bytes that were mapped."""


@dataclass(frozen=True, slots=True)
class CloseMapping:
    """Give the mapping up."""


class MappingState(Enum):
    """IDLE -> OPENED -> MAPPED -> CLOSING -> CLOSED or QUARANTINED, or FAILED with the context's error."""

    IDLE = "idle"
    OPENED = "opened"
    MAPPED = "mapped"
    CLOSING = "closing"
    FAILED = "failed"
    QUARANTINED = "quarantined"
    CLOSED = "closed"


@dataclass(slots=True)
class MappingContext:
    """The mapping and its bytes; `error` is set in FAILED; `n_refused` counts advice the system did not take.

    `n_bytes` is the file's size, 0 when it could not be opened.
    """

    platform: Platform = field(default_factory=lambda: SYSTEM)
    path: str = ""
    n_bytes: int = 0
    opened: OpenedFile | None = None
    mapping: mmap.mmap | None = None
    view: memoryview | None = None
    quarantined: mmap.mmap | None = None
    error: SourceError | None = None
    n_refused: int = 0


def has_failed(context: MappingContext, _event: object) -> bool:
    """A platform call of the last effect failed."""
    return context.error is not None


def is_quarantined(context: MappingContext, _event: object) -> bool:
    """The system did not take the mapping back."""
    return context.quarantined is not None


def is_inside(context: MappingContext, event: Advise) -> bool:
    """The range lies in the mapping and the advice is a known one."""
    known = event.advice in {"sequential", "willneed", "dontneed"}
    size = len(context.view) if context.view is not None else 0
    return known and event.offset >= 0 and event.n_bytes > 0 and event.offset + event.n_bytes <= size


def open_file(context: MappingContext, event: OpenMapping) -> None:
    """Opens and measures the file."""
    context.path = event.path
    try:
        context.opened = open_regular(context.platform, event.path)
        context.n_bytes = context.opened.n_bytes
    except SourceError as error:
        context.error = error


def map_file(context: MappingContext, _event: OpenMapping) -> None:
    """Maps the whole file and closes the descriptor."""
    assert context.opened is not None
    try:
        context.mapping = context.platform.map(context.opened.descriptor, context.n_bytes)
        context.view = memoryview(context.mapping)
    except (OSError, ValueError, OverflowError, MemoryError) as error:
        context.error = SourceError(f"cannot map {context.path!r} ({context.n_bytes} bytes): {reason_of(error)}")
    finally:
        close_quietly(context.platform, context.opened.descriptor)
        context.opened = None


def advise_range(context: MappingContext, event: Advise) -> None:
    """Passes the advice on for whole pages; advice is a hint, a refusal is only counted."""
    assert context.mapping is not None
    start = event.offset // mmap.PAGESIZE * mmap.PAGESIZE
    try:
        context.platform.advise(context.mapping, event.advice, start, event.offset + event.n_bytes - start)
    except OSError:
        context.n_refused += 1


def compare_size(context: MappingContext, _event: VerifyMapping) -> None:
    """Sets the error when the file is now shorter than its mapping."""
    assert context.mapping is not None
    assert context.view is not None
    try:
        n_bytes = context.platform.mapped_size(context.mapping)
    except OSError as error:
        context.error = SourceError(f"cannot check {context.path!r}: {reason_of(error)}")
        return
    if n_bytes < len(context.view):
        context.error = SourceError(
            f"{context.path!r} shrank from {len(context.view)} to {n_bytes} bytes while it was in use: fetch it again"
        )


def drop_mapping(context: MappingContext, _event: object) -> None:
    """Releases the view, and the mapping unless callers hold views of it."""
    view, mapping = context.view, context.mapping
    context.view = context.mapping = None
    if view is not None:
        view.release()
    if mapping is not None:
        try:
            context.platform.unmap(mapping)
        except BufferError:  # views are alive; the mapping is freed with the last one
            return
        except OSError:
            context.quarantined = mapping


class MappingMachine(Machine[MappingState, MappingContext]):
    """Maps one file; the bytes are `context.view` in MAPPED."""

    INITIAL = MappingState.IDLE
    TERMINAL = frozenset({MappingState.FAILED, MappingState.QUARANTINED, MappingState.CLOSED})
    FAILED = frozenset({MappingState.FAILED})
    # fmt: off
    TABLE = (
        #   source                event          guard           effect        destination
        Row(MappingState.IDLE,    OpenMapping,   None,           open_file,    MappingState.OPENED),
        Row(MappingState.OPENED,  None,          has_failed,     None,         MappingState.FAILED),
        Row(MappingState.OPENED,  None,          None,           map_file,     MappingState.MAPPED),
        Row(MappingState.MAPPED,  None,          has_failed,     drop_mapping, MappingState.FAILED),
        Row(MappingState.MAPPED,  Advise,        is_inside,      advise_range, MappingState.MAPPED),
        Row(MappingState.MAPPED,  VerifyMapping, None,           compare_size, MappingState.MAPPED),
        Row(MappingState.MAPPED,  CloseMapping,  None,           drop_mapping, MappingState.CLOSING),
        Row(MappingState.CLOSING, None,          is_quarantined, None,         MappingState.QUARANTINED),
        Row(MappingState.CLOSING, None,          None,           None,         MappingState.CLOSED),
    )
    # fmt: on
