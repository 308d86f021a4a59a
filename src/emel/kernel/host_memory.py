"""How much memory this process may still take: what the machine has, and what its control groups leave.

The page cache counts as free in both: the kernel gives it back when asked. So

    available = min(MemAvailable, limit - (current - inactive_file))   over the group and all groups above it

MemAvailable: proc(5), /proc/meminfo. Groups: cgroups(7); admin-guide/cgroup-v2 "Memory Interface Files" and
admin-guide/cgroup-v1/memory of the Linux kernel's documentation.
"""

from __future__ import annotations

from pathlib import Path

from emel.kernel.control_groups import group_folders, read_text
from emel.lazy_dataclasses import dataclass

# Version 1 writes "no limit" as the largest page-aligned signed 64-bit number; anything near it means the same.
_UNLIMITED = 1 << 60
# By version: limit, use, and the use that is page cache nobody touched lately.
_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Bytes; None is what this system does not tell."""

    total: int | None
    available: int | None
    limit: int | None
    """The lowest limit of the control groups, None without one."""
    limited_by_group: bool
    """Whether the groups leave less than the machine has."""


def read_host_memory(root: Path = Path("/")) -> HostMemory:
    """Reads /proc and /sys below `root`; never fails."""
    machine = _read_fields(root / "proc/meminfo", scale=1024)
    free = machine.get("MemAvailable")
    limit, left = None, None
    for folder, version in group_folders("memory", root):
        _, current_name, inactive_name = _FILES[version]
        group_limit, current = _limit_of(folder, version), _read_count(folder / current_name)
        if group_limit is None or current is None:
            continue
        inactive = _read_fields(folder / "memory.stat").get(inactive_name, 0)
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


def read_group_limit(root: Path = Path("/")) -> int | None:
    """Bytes that the control groups allow this process, None without a limit; a part of the above that costs less."""
    limits = [_limit_of(folder, version) for folder, version in group_folders("memory", root)]
    return min((limit for limit in limits if limit is not None), default=None)


def _limit_of(folder: Path, version: int) -> int | None:
    limit = _read_count(folder / _FILES[version][0])
    return None if limit is None or limit >= _UNLIMITED else limit


def _read_count(path: Path) -> int | None:
    text = read_text(path).strip()
    return int(text) if text.isdecimal() else None  # "max" sets no limit


def _read_fields(path: Path, scale: int = 1) -> dict[str, int]:
    """Lines `name: 12 kB` and `name 12` as a dictionary, each number times `scale`."""
    fields = {}
    for line in read_text(path).splitlines():
        words = line.replace(":", " ").split()
        if len(words) >= 2 and words[1].isdecimal():
            fields[words[0]] = int(words[1]) * scale
    return fields
