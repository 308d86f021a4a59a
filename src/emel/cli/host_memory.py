"""How much memory this process may still take: what the machine has, and what its control group leaves.

The page cache counts as free in both: the kernel gives it back when asked. So

    available = min(MemAvailable, limit - (current - inactive_file))   over the group and all groups above it

MemAvailable: proc(5). Files of the groups: Linux kernel documentation, admin-guide/cgroup-v2 "Memory Interface Files"
and admin-guide/cgroup-v1/memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# Version 1 writes "no limit" as the largest page-aligned signed 64-bit number; anything near it means the same.
_UNLIMITED = 1 << 60


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Bytes; None is what this system does not tell."""

    total: int | None
    available: int | None
    limit: int | None
    """The lowest limit of the control groups, None without one."""
    limited_by_group: bool
    """Whether the group leaves less than the machine has."""


@dataclass(frozen=True, slots=True)
class _GroupFiles:
    limit: str
    current: str
    inactive_file: str


_V2 = _GroupFiles("memory.max", "memory.current", "inactive_file")
_V1 = _GroupFiles("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def read_host_memory(root: Path = Path("/")) -> HostMemory:
    """Reads /proc and /sys below `root`; never fails, what cannot be read is None."""
    machine = _read_fields(root / "proc/meminfo", scale=1024)
    free = machine.get("MemAvailable")
    limit, left = None, None
    for folder, files in _groups(root):
        group_limit = _read_int(folder / files.limit)
        current = _read_int(folder / files.current)
        if group_limit is None or group_limit >= _UNLIMITED or current is None:
            continue
        inactive = _read_fields(folder / "memory.stat").get(files.inactive_file, 0)
        group_left = max(0, group_limit - (current - inactive))
        limit = group_limit if limit is None else min(limit, group_limit)
        left = group_left if left is None else min(left, group_left)
    known = [value for value in (free, left) if value is not None]
    return HostMemory(
        total=machine.get("MemTotal"),
        available=min(known) if known else None,
        limit=limit,
        limited_by_group=left is not None and (free is None or left < free),
    )


def _groups(root: Path) -> list[tuple[Path, _GroupFiles]]:
    """The memory groups of this process, from its own up to the root of each hierarchy."""
    found: list[tuple[Path, _GroupFiles]] = []
    for line in _read_text(root / "proc/self/cgroup").splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0":
            mount, files = root / "sys/fs/cgroup", _V2
            if (root / "sys/fs/cgroup/unified").is_dir():  # both versions side by side
                mount = mount / "unified"
        elif "memory" in controllers.split(","):
            mount, files = root / "sys/fs/cgroup/memory", _V1
        else:
            continue
        # In a container the path may be the host's, which is not visible here: its own group is then the mount itself.
        folder = mount / path.lstrip("/")
        while folder != mount and mount in folder.parents:
            found.append((folder, files))
            folder = folder.parent
        found.append((mount, files))
    return found


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _read_int(path: Path) -> int | None:
    text = _read_text(path).strip()
    return int(text) if text.isdecimal() else None  # "max" is no limit


def _read_fields(path: Path, scale: int = 1) -> dict[str, int]:
    """`name: 12 kB` and `name 12` lines as a dictionary."""
    fields = {}
    for line in _read_text(path).splitlines():
        words = line.replace(":", " ").split()
        if len(words) >= 2 and words[1].isdecimal():
            fields[words[0]] = int(words[1]) * scale
    return fields
