"""A hard limit of memory for a benchmark's child processes, page cache included; never a silent run without one.

Control groups, version 2 where its memory controller may be used, else version 1: a group below this process's own,
which the children enter before they become what they are. Both count the page cache of what their members read first.
Linux kernel documentation: admin-guide/cgroup-v2 "Memory", admin-guide/cgroup-v1/memory.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from emel.errors import EmelError
from emel.kernel.control_groups import group_folders, read_text
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

# By version: the limit, the limit with swap, the most that was used.
_FILES = {
    1: ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.max_usage_in_bytes"),
    2: ("memory.max", "memory.swap.max", "memory.peak"),
}


class CapError(EmelError):
    """There is no way to limit memory here."""


@dataclass(frozen=True, slots=True)
class _Group:
    folder: Path
    version: int


class MemoryCap:
    """Limits children to `n_bytes` while its `with` lasts; CapError when this system offers no way."""

    def __init__(self, n_bytes: int, root: Path = Path("/")) -> None:
        self.n_bytes = n_bytes
        self._group = _make_group(n_bytes, root)

    def command(self, command: Sequence[str]) -> list[str]:
        """The command that runs another one within the limit."""
        enter = 'echo $$ > "$0" && exec "$@"'
        return ["sh", "-c", enter, str(self._group.folder / "cgroup.procs"), *command]

    def peak_bytes(self) -> int | None:
        """The most memory the children had together, page cache included; None where the kernel does not say."""
        text = read_text(self._group.folder / _FILES[self._group.version][2])
        return int(text) if text.isdecimal() else None

    def close(self) -> None:
        """Gives the group back; the children must have ended."""
        with suppress(OSError):
            self._group.folder.rmdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _make_group(n_bytes: int, root: Path) -> _Group:
    reasons = []
    for own, version in group_folders("memory", root):
        folder = own / f"emel-bench-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError as error:
            reasons.append(f"{own}: {error.strerror}")
            continue
        try:
            _limit(folder, version, n_bytes)
        except OSError as error:
            reasons.append(f"{folder}: {error.strerror}")
            folder.rmdir()
            continue
        return _Group(folder, version)
    seen = "; ".join(reasons) or "this process is in no memory group"
    raise CapError(
        f"memory cannot be limited here ({seen})",
        hint="run as root, or in a group you own: systemd-run --user --scope -p Delegate=yes emel bench ...",
    )


def _limit(folder: Path, version: int, n_bytes: int) -> None:
    limit, with_swap, _ = _FILES[version]
    (folder / limit).write_text(str(n_bytes), encoding="ascii")
    with suppress(OSError):  # a kernel that does not count swap: the machine must have none, or the limit leaks
        (folder / with_swap).write_text(str(n_bytes if version == 1 else 0), encoding="ascii")
