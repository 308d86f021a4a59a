"""Memory as a machine and its control groups tell it, from fake /proc and /sys trees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emel.kernel.host_memory import HostMemory, read_group_limit, read_host_memory

if TYPE_CHECKING:
    from pathlib import Path

GB = 1 << 30
MEMINFO = f"MemTotal:       {16 * GB >> 10} kB\nMemFree: 12 kB\nMemAvailable:   {10 * GB >> 10} kB\n"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def v2_group(path: str, limit: object, current: int, inactive: int) -> dict[str, str]:
    folder = f"sys/fs/cgroup/{path}".rstrip("/")
    return {
        f"{folder}/memory.max": f"{limit}\n",
        f"{folder}/memory.current": f"{current}\n",
        f"{folder}/memory.stat": f"anon 1\ninactive_file {inactive}\nactive_file 7\n",
    }


def v1_group(path: str, limit: int, current: int, inactive: int) -> dict[str, str]:
    folder = f"sys/fs/cgroup/memory/{path}".rstrip("/")
    return {
        f"{folder}/memory.limit_in_bytes": f"{limit}\n",
        f"{folder}/memory.usage_in_bytes": f"{current}\n",
        f"{folder}/memory.stat": f"inactive_file 3\ntotal_inactive_file {inactive}\n",
    }


def test_machine_without_groups(tmp_path: Path) -> None:
    root = write(tmp_path, {"proc/meminfo": MEMINFO})
    assert read_host_memory(root) == HostMemory(16 * GB, 10 * GB, None, limited_by_group=False)


def test_nothing_readable_is_unknown(tmp_path: Path) -> None:
    assert read_host_memory(tmp_path) == HostMemory(None, None, None, limited_by_group=False)


@pytest.mark.parametrize(
    ("limit", "current", "inactive", "available", "by_group"),
    [
        (4 * GB, 3 * GB, 2 * GB, 3 * GB, True),  # the page cache does not count as used
        (4 * GB, 4 * GB, 0, 0, True),
        (4 * GB, 5 * GB, 0, 0, True),  # over the limit is nothing, not less
        (32 * GB, GB, 0, 10 * GB, False),  # the machine has less than the group allows
    ],
)
def test_limit_of_a_v2_group(
    limit: int, current: int, inactive: int, available: int, by_group: bool, tmp_path: Path
) -> None:
    files = v2_group("a/b", limit, current, inactive)
    root = write(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/a/b\n", **files})
    assert read_host_memory(root) == HostMemory(16 * GB, available, limit, limited_by_group=by_group)


def test_tightest_group_above_counts(tmp_path: Path) -> None:
    files = v2_group("a/b", "max", GB, 0) | v2_group("a", 6 * GB, 2 * GB, GB) | v2_group("", 8 * GB, 7 * GB, 0)
    root = write(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/a/b\n", **files})
    assert read_host_memory(root) == HostMemory(16 * GB, GB, 6 * GB, limited_by_group=True)


@pytest.mark.parametrize(
    ("own", "above", "limit"), [(4 * GB, "max", 4 * GB), (4 * GB, 3 * GB, 3 * GB), ("max",) * 2 + (None,)]
)
def test_group_limit_is_the_tightest(tmp_path: Path, own: object, above: object, limit: int | None) -> None:
    files = v2_group("a/b", own, GB, 0) | v2_group("a", above, GB, 0)
    root = write(tmp_path, {"proc/self/cgroup": "0::/a/b\n", **files})
    assert read_group_limit(root) == read_host_memory(root).limit == limit


def test_limit_of_a_v1_group_seen_from_the_host(tmp_path: Path) -> None:
    files = v1_group("docker/x", 2 * GB, GB, GB // 2) | v1_group("", 0x7FFFFFFFFFFFF000, GB, 0)
    listed = "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n0::/\n"
    root = write(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": listed, **files})
    assert read_host_memory(root) == HostMemory(16 * GB, 3 * GB // 2, 2 * GB, limited_by_group=True)


def test_limit_of_a_v1_group_seen_from_inside_the_container(tmp_path: Path) -> None:
    """The path of the host is not visible: the mount is the group."""
    files = v1_group("", 2 * GB, GB, 0)
    root = write(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": "4:memory:/docker/x\n", **files})
    assert read_host_memory(root) == HostMemory(16 * GB, GB, 2 * GB, limited_by_group=True)


def test_v2_beside_v1(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/unified/a/memory.max": f"{GB}\n", "sys/fs/cgroup/unified/a/memory.current": "0\n"}
    root = write(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/a\n", **files})
    assert read_host_memory(root).available == GB


def test_this_machine_is_readable() -> None:
    memory = read_host_memory()
    assert memory.total is not None
    assert memory.available is not None
    assert 0 < memory.available <= memory.total
