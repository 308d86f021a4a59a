"""ReadLanes: the native lanes that read matrices of open files and pack them, and the thread that tells of the end.

A request is known by its ticket. It completes exactly once: `deliver` is called with its ticket and None, or the
SourceError that ended it, on the thread of this object; what `submit` refuses (by raising) never completes. `close`
cancels what is left, and every request in flight has been delivered when it returns, or forgotten where the thread
itself closes: the collector may run there as anywhere, and by then nobody waits for what it collects.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import TYPE_CHECKING, NamedTuple

from emel._native.library import LIBRARY, check
from emel._native.reader import (
    MOST_PARTS,
    N_LANES,
    AdviseCall,
    ReadCall,
    ReadCalls,
    ReadDone,
    ReaderDesc,
    ReadFile,
    ReadPart,
    ReadStatus,
    ReadTotals,
    declare_reader,
)
from emel.io.errors import SourceError
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

    from emel.io.parts import OpenedPart

    Deliver = Callable[[int, SourceError | None], None]

__all__ = ["MOST_PARTS", "N_LANES", "LaneCalls", "Part", "ReadLanes", "Request", "Totals"]


class Part(NamedTuple):
    """A (rows, cols) matrix of a GGUF type at `offset` of a file, and the memory its packed form goes to."""

    offset: int
    address: int
    n_bytes: int
    rows: int
    cols: int
    type: int
    file: int = 0


class Totals(NamedTuple):
    """What was read so far: bytes of the files, and chunks."""

    n_bytes: int
    n_chunks: int


@dataclass(frozen=True, slots=True)
class LaneCalls:
    """Stand-ins for the system's calls, for tests: called on the lanes' threads.

    read(descriptor, address, n_bytes, offset): bytes read, 0 at the end, or a negative errno.
    advise(descriptor, offset, n_bytes, is_ahead).
    """

    read: Callable[[int, int, int, int], int] | None = None
    advise: Callable[[int, int, int, bool], None] | None = None


class Request:
    """Parts laid out once, to be submitted any number of times."""

    __slots__ = ("array",)

    def __init__(self, parts: Sequence[Part]) -> None:
        if not 1 <= len(parts) <= MOST_PARTS:
            raise ValueError(f"a request has {len(parts)} parts: 1 to {MOST_PARTS} are allowed")
        self.array = part_array(parts)


def part_array(parts: Sequence[Part]) -> ctypes.Array[ReadPart]:
    """The parts as the library takes them."""
    return (ReadPart * len(parts))(*(ReadPart(*part) for part in parts))


class ReadLanes:
    """Lanes over the files of `opened`, which stay the caller's and open until `close`. One thread at a time; `totals`
    is for any.

    NativeError for a chunk outside 64 KiB to 16 MiB, RuntimeError where no thread can be had. A fork leaves the threads
    behind: closing there does nothing.
    """

    __slots__ = ("_calls", "_handle", "_looking", "_process", "_thread", "_totals")

    def __init__(
        self,
        opened: Sequence[OpenedPart],
        deliver: Deliver,
        *,
        chunk_bytes: int,
        calls: LaneCalls | None = None,
    ) -> None:
        declare_reader()
        desc = native_desc(opened, chunk_bytes, calls or LaneCalls())
        self._calls = desc.calls
        handle = ctypes.c_void_p()
        check(LIBRARY.emel_reader_create(ctypes.byref(desc), ctypes.byref(handle)))
        self._handle: ctypes.c_void_p | None = handle
        self._process = os.getpid()
        self._totals = Totals(0, 0)
        self._looking = threading.Lock()  # at the reader, for its totals: it must not go meanwhile
        # It keeps nothing of this object alive, so that an owner which forgot to close can still be collected.
        self._thread = threading.Thread(
            target=_deliver_all, args=(handle, tuple(opened), deliver), name="emel-read", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError:  # the system has no thread left; none would ever destroy the reader
            self._handle = None
            LIBRARY.emel_reader_destroy(handle)
            raise

    def submit(self, ticket: int, request: Request, *, is_urgent: bool = False) -> None:
        """Has the parts read; urgent ones before others. NativeError says why it is refused, ValueError once closed."""
        array = request.array
        check(LIBRARY.emel_reader_submit(self._open(), ticket, array, len(array), int(is_urgent)))

    def totals(self) -> Totals:
        """What was read so far, or had been when it was closed."""
        if self._process != os.getpid():  # nobody there gives the lock back
            return self._totals
        with self._looking:
            if self._handle is not None:
                totals = ReadTotals()
                LIBRARY.emel_reader_totals(self._handle, ctypes.byref(totals))
                self._totals = Totals(totals.n_bytes, totals.n_chunks)
            return self._totals

    def _open(self) -> ctypes.c_void_p:
        if self._handle is None or self._process != os.getpid():
            raise ValueError("these read lanes are closed, or were made before a fork")
        return self._handle

    def close(self) -> None:
        """Cancels, delivers what is left, and ends the threads; harmless when repeated."""
        if self._process != os.getpid():
            return
        self.totals()
        with self._looking:
            handle, self._handle = self._handle, None
        if handle is None:
            return
        LIBRARY.emel_reader_stop(handle)
        if self._thread is threading.current_thread():
            _forget_all(handle)
        else:
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()


def _deliver_all(handle: ctypes.c_void_p, opened: Sequence[OpenedPart], deliver: Deliver) -> None:
    """The thread: delivers until the reader was stopped and nothing is left, then destroys it, as it looked last."""
    done = ReadDone()
    while LIBRARY.emel_reader_next(handle, ctypes.byref(done)):
        deliver(done.ticket, error_of(done, opened[done.file]))
    LIBRARY.emel_reader_destroy(handle)


def _forget_all(handle: ctypes.c_void_p) -> None:
    """Waits until a stopped reader touches neither files nor memory any more; nobody hears of what was in flight."""
    done = ReadDone()
    while LIBRARY.emel_reader_next(handle, ctypes.byref(done)):
        pass


def error_of(done: ReadDone, part: OpenedPart) -> SourceError | None:
    """What ended a read, of which file; None when nothing did."""
    if done.status == ReadStatus.OK:
        return None
    path, n_bytes = part.path, part.file.n_bytes
    if done.status == ReadStatus.FAILED:
        return SourceError(f"cannot read {path!r} at byte {done.offset}: {os.strerror(done.error)}")
    if done.status == ReadStatus.ENDED:
        return SourceError(
            f"{path!r} shrank from {n_bytes} to at most {done.offset} bytes while it was read: fetch it again"
        )
    return SourceError("reading was cancelled: the reader was closed")


def native_desc(
    opened: Sequence[OpenedPart], chunk_bytes: int, calls: LaneCalls, *, keeps_cache: bool = False
) -> ReaderDesc:
    """The files as the library takes them. keeps_cache: what was read stays in the page cache.

    `calls` of the result must live as long as they may be called.
    """
    files = (ReadFile * len(opened))(
        *(ReadFile(each.file.n_bytes, each.file.descriptor, int(each.is_direct)) for each in opened)
    )
    return ReaderDesc(files, len(opened), chunk_bytes, int(keeps_cache), calls=_native_calls(calls))


def _native_calls(calls: LaneCalls) -> ReadCalls:
    native = ReadCalls()
    read, advise = calls.read, calls.advise
    if read is not None:
        native.read = ReadCall(lambda _, descriptor, address, n, offset: read(descriptor, address, n, offset))
    if advise is not None:

        def pass_on(_context: object, descriptor: int, offset: int, n_bytes: int, advice: int) -> int:
            advise(descriptor, offset, n_bytes, advice == 0)
            return 0

        native.advise = AdviseCall(pass_on)
    return native
