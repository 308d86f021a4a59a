"""A file's bytes as a copy in memory: for file systems that cannot map, and files that others rewrite.

1. One machine copies one file once; FAILED and CLOSED are final.
2. The file is read in chunks to its measured size; an early end is an error, never a short result.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum

from emel.io.descriptor import OpenedFile, close_quietly, open_regular, read_exactly
from emel.io.errors import SourceError
from emel.io.platform import SYSTEM, Platform
from emel.lazy_dataclasses import dataclass
from emel.sm import Machine, Row


@dataclass(frozen=True, slots=True)
class OpenCopy:
    """Read the file at path into memory."""

    path: str


@dataclass(frozen=True, slots=True)
class CloseCopy:
    """Give the copy up."""


class CopyState(Enum):
    """IDLE -> OPENED -> ALLOCATED -> COPIED -> CLOSED, or FAILED with the context's error."""

    IDLE = "idle"
    OPENED = "opened"
    ALLOCATED = "allocated"
    COPIED = "copied"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(slots=True)
class CopyContext:
    """The copied bytes; `error` is set in FAILED."""

    platform: Platform = field(default_factory=lambda: SYSTEM)
    path: str = ""
    opened: OpenedFile | None = None
    buffer: bytearray | None = None
    view: memoryview | None = None
    error: SourceError | None = None


def has_failed(context: CopyContext, _event: object) -> bool:
    """The last effect could not do its work."""
    return context.error is not None


def open_file(context: CopyContext, event: OpenCopy) -> None:
    """Opens and measures the file."""
    context.path = event.path
    try:
        context.opened = open_regular(context.platform, event.path)
    except SourceError as error:
        context.error = error


def allocate_buffer(context: CopyContext, _event: OpenCopy) -> None:
    """Takes memory for the whole file."""
    assert context.opened is not None
    n_bytes = context.opened.n_bytes
    try:
        context.buffer = bytearray(n_bytes)
    except (MemoryError, OverflowError):
        context.error = SourceError(
            f"cannot copy {context.path!r}: no memory for its {n_bytes} bytes: free some, or map the file"
        )


def read_chunks(context: CopyContext, _event: OpenCopy) -> None:
    """Reads the file to its measured size, chunk by chunk, and closes the descriptor."""
    assert context.opened is not None
    assert context.buffer is not None
    try:
        with memoryview(context.buffer) as target:
            read_exactly(context.platform, context.path, context.opened, target, 0)
        context.view = memoryview(context.buffer).toreadonly()
    except SourceError as error:
        context.error = error
    finally:
        _close_file(context)


def drop_copy(context: CopyContext, _event: object) -> None:
    """Releases the bytes (views that callers hold stay valid) and whatever is still open."""
    _close_file(context)
    if context.view is not None:
        context.view.release()
    context.view = None
    context.buffer = None


def _close_file(context: CopyContext) -> None:
    if context.opened is not None:
        close_quietly(context.platform, context.opened.descriptor)
        context.opened = None


class CopyMachine(Machine[CopyState, CopyContext]):
    """Copies one file; the bytes are `context.view` in COPIED."""

    INITIAL = CopyState.IDLE
    TERMINAL = frozenset({CopyState.FAILED, CopyState.CLOSED})
    FAILED = frozenset({CopyState.FAILED})
    # fmt: off
    TABLE = (
        #   source               event      guard       effect           destination
        Row(CopyState.IDLE,      OpenCopy,  None,       open_file,       CopyState.OPENED),
        Row(CopyState.OPENED,    None,      has_failed, None,            CopyState.FAILED),
        Row(CopyState.OPENED,    None,      None,       allocate_buffer, CopyState.ALLOCATED),
        Row(CopyState.ALLOCATED, None,      has_failed, drop_copy,       CopyState.FAILED),
        Row(CopyState.ALLOCATED, None,      None,       read_chunks,     CopyState.COPIED),
        Row(CopyState.COPIED,    None,      has_failed, drop_copy,       CopyState.FAILED),
        Row(CopyState.COPIED,    CloseCopy, None,       drop_copy,       CopyState.CLOSED),
    )
    # fmt: on
