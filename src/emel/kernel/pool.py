"""The owner of a native lane pool: the caller is lane 0, the others are warm workers."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

from emel._native import LIBRARY, check
from emel._native import abi as _abi  # noqa: F401 - declares the prototypes
from emel.kernel.lane_share import LaneShare

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

MAX_LANES = 256

_process = os.getpid()  # kept, as pools ask before every run


def _note_fork() -> None:
    global _process  # noqa: PLW0603 - the process has one number
    _process = os.getpid()


os.register_at_fork(after_in_child=_note_fork)


class LanePool:
    """`n_lanes` lanes, alive from construction to `close`; a context manager.

    Runs one thing at a time: a second concurrent run waits its turn. Close it only when nothing runs on it. The lanes
    belong to the process that made them: after a fork the child has none, and closing there gives nothing back.
    """

    __slots__ = ("_handle", "_process", "_share", "n_lanes", "n_used")

    def __init__(self, n_lanes: int) -> None:
        if not 1 <= n_lanes <= MAX_LANES:
            raise ValueError(f"a pool cannot have {n_lanes} lanes: 1 to {MAX_LANES} are allowed")
        handle = ctypes.c_void_p()
        check(LIBRARY.emel_pool_create(n_lanes, ctypes.byref(handle)))
        self._handle: ctypes.c_void_p | None = handle
        self._process = _process
        self.n_lanes = n_lanes
        self.n_used = n_lanes
        self._share = LaneShare(n_lanes)

    @property
    def handle(self) -> ctypes.c_void_p:
        """The emel_pool; ValueError once closed, and in a forked child."""
        if self._handle is None:
            raise ValueError("this lane pool is closed")
        if self._process != _process:
            raise ValueError("this lane pool was made before a fork and has no lanes in the child: make another")
        return self._handle

    def use(self, n_lanes: int) -> None:
        """Has the runs from now on use so many lanes, the others sleep. ValueError beyond 1 to all."""
        if not 1 <= n_lanes <= self.n_lanes:
            raise ValueError(f"a pool of {self.n_lanes} lanes cannot use {n_lanes}: 1 to all of them are allowed")
        check(LIBRARY.emel_pool_use(self.handle, n_lanes))
        self.n_used = n_lanes

    def note_run(self) -> None:
        """Uses fewer lanes for a while where other programs take their CPUs; to be called behind runs."""
        if self.n_lanes > 1 and (n := self._share.next(LIBRARY.emel_pool_waited(self.handle))) != self.n_used:
            self.use(n)

    def fork_join(self) -> None:
        """Runs nothing on all lanes: what forking and joining them costs by itself."""
        check(LIBRARY.emel_pack(self.handle, None, 0))

    def close(self) -> None:
        """Ends the workers; harmless when repeated."""
        handle, self._handle = self._handle, None
        if handle is not None and self._process == _process:
            LIBRARY.emel_pool_destroy(handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()
