"""A hard limit of memory for a benchmark's child processes, page cache included; never a silent run without one.

Control groups, version 2 where its memory controller may be used, else version 1: a group below this process's own,
which the children enter before they become what they are. Both count the page cache of what their members read first.
Where no group may be made, systemd is asked for scopes (emel.bench.memory_scope), which are groups of version 2.
Linux kernel documentation: admin-guide/cgroup-v2 "Memory", admin-guide/cgroup-v1/memory.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from emel.bench.memory_scope import MemoryScope, ScopeError
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

    def command(self, command: Sequence[str]) -> list[str]:
        enter = 'echo $$ > "$0" && exec "$@"'
        return ["sh", "-c", enter, str(self.folder / "cgroup.procs"), *command]

    def peak_bytes(self) -> int | None:
        text = read_text(self.folder / _FILES[self.version][2])
        return int(text) if text.isdecimal() else None

    def close(self) -> None:
        with suppress(OSError):
            self.folder.rmdir()


class MemoryCap:
    """Limits children to `n_bytes` while its `with` lasts; CapError when this system offers no way."""

    def __init__(self, n_bytes: int, root: Path = Path("/")) -> None:
        self.n_bytes = n_bytes
        self._limit: _Group | MemoryScope = _make_limit(n_bytes, root)

    def command(self, command: Sequence[str]) -> list[str]:
        """The command that runs another one within the limit."""
        return self._limit.command(command)

    def peak_bytes(self) -> int | None:
        """The most memory the children had, page cache included, asked while the last one runs.

        None where the kernel does not say.
        """
        return self._limit.peak_bytes()

    def close(self) -> None:
        """Gives the limit back; the children must have ended."""
        self._limit.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _make_limit(n_bytes: int, root: Path) -> _Group | MemoryScope:
    reasons = []
    for own, version in group_folders("memory", root):
        folder = own / f"emel-bench-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError as error:
            reasons.append(f"{own}: {error.strerror}")
            continue
        try:
            _write_limit(folder, version, n_bytes)
        except OSError as error:
            reasons.append(f"{folder}: {error.strerror}")
            folder.rmdir()
            continue
        return _Group(folder, version)
    try:
        return MemoryScope(n_bytes, root)
    except ScopeError as error:
        reasons.append(str(error))
    seen = "; ".join(reasons)
    raise CapError(
        f"memory cannot be limited here ({seen})",
        hint="run as root, in a group you own, or where systemd runs",
    )


def _write_limit(folder: Path, version: int, n_bytes: int) -> None:
    limit, with_swap, _ = _FILES[version]
    (folder / limit).write_text(str(n_bytes), encoding="ascii")
    with suppress(OSError):  # a kernel that does not count swap: the machine must have none, or the limit leaks
        (folder / with_swap).write_text(str(n_bytes if version == 1 else 0), encoding="ascii")
