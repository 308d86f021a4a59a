"""How a finished file gets its name: in one step, and on disk before anybody sees it."""

from __future__ import annotations

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
