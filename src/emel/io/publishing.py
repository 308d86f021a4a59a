"""How a finished file gets its name: in one step, and on disk before anybody sees it."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def publish(finished: Path, target: Path) -> None:
    """Has `finished`, closed and on the same file system, take the place of `target`; OSError, and both are as before.

    Without the sync a crash could leave the new name with what was not written yet, and the old content gone.
    """
    with finished.open("rb") as stream:
        os.fsync(stream.fileno())
    finished.replace(target)


class PartialFile:
    """`NAME.partial` beside a file that is being written, for one writer at a time.

    What a killed writer left there is written over by the next. To be closed; what was not published is gone then.
    """

    def __init__(self, target: Path) -> None:
        """OSError when it cannot be written, or another run is writing it."""
        self.path = target.with_name(f"{target.name}.partial")
        self._target = target
        while True:
            self._lock = self.path.open("ab")
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._lock.close()
                raise OSError(errno.EBUSY, "another run is writing it", str(target)) from None
            except OSError:  # of a file system without locks
                self._lock.close()
                raise
            if self._is_current():
                return
            self._lock.close()  # its writer took it away meanwhile

    def publish(self) -> None:
        """Gives it its name; it must be closed by who wrote it. OSError."""
        publish(self.path, self._target)

    def close(self) -> None:
        """Harmless when repeated."""
        if not self._lock.closed:
            if self._is_current():
                self.path.unlink()
            self._lock.close()

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._lock.fileno()), self.path.stat())
        except FileNotFoundError:
            return False
