"""Where fetched models live, and how a file gets there: complete or not at all.

models/<file>          a finished model; appears by one rename
models/.<file>.lock    held (flock) by the one process that fetches it
models/.<file>.fetch/  its downloads and the file being written; emptied by the next holder of the lock
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

from emel.errors import ModelFetchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def cache_folder() -> Path:
    """EMEL's part of the user's cache: $EMEL_CACHE, else $XDG_CACHE_HOME/emel, else ~/.cache/emel.

    Raises ModelFetchError when none of them is known.
    """
    if own := os.environ.get("EMEL_CACHE"):
        return Path(own).expanduser().absolute()
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG base directory specification: a relative path is invalid and ignored.
    if shared.is_absolute():
        return shared / "emel"
    try:
        return Path.home() / ".cache" / "emel"
    except RuntimeError as error:
        raise ModelFetchError("this user has no home folder to keep models in", hint="set EMEL_CACHE") from error


def models_folder() -> Path:
    """The folder of the fetched models; it may not exist yet."""
    return cache_folder() / "models"


@contextlib.contextmanager
def fetch_lock(target: Path, notify: Callable[[str], None]) -> Iterator[Path]:
    """Holds the right to create `target`; yields an empty work folder on the same file system, removed at the end.

    Waits while another process or thread holds it, after saying so through `notify`.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(target.parent / f".{target.name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            notify(f"another process is fetching {target.name}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        import shutil

        work = target.parent / f".{target.name}.fetch"
        # A killed process could not remove its own; the lock says nobody uses it.
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)
    finally:
        os.close(lock)


def check_free_space(folder: Path, n_bytes: int) -> None:
    """Raises ModelFetchError when `folder`'s file system has less than `n_bytes` free."""
    import shutil

    free = shutil.disk_usage(folder).free
    if free < n_bytes:
        raise ModelFetchError(
            f"{folder} has {free / 1e6:,.0f} MB free, fetching needs {n_bytes / 1e6:,.0f} MB",
            hint="free some space, or set EMEL_CACHE to a folder on a larger disk",
        )
