"""How many lanes suit this process: one for each physical core it may use, within its control group's CPU quota.

Two lanes on one core share its multipliers and only wait for each other; lanes beyond the quota are stopped by the
kernel while all others wait for them. Linux files: proc(5) and cgroups(7), admin-guide/cgroup-v1 and -v2.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from emel.kernel.control_groups import group_folders, read_text
from emel.kernel.pool import MAX_LANES
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection


@dataclass(frozen=True, slots=True)
class ThreadChoice:
    """How many lanes to use and why."""

    n_threads: int
    reason: str


def choose_threads(
    requested: int | None = None, *, root: Path = Path("/"), allowed: Collection[int] | None = None
) -> ThreadChoice:
    """The lanes to use. `root` and `allowed` (CPUs of the affinity mask) stand in for the machine in tests.

    ValueError for a request that no pool of lanes can be made of.
    """
    if requested is not None:
        if not 1 <= requested <= MAX_LANES:
            raise ValueError(f"{requested} threads were asked for: 1 to {MAX_LANES} are allowed")
        return ThreadChoice(requested, "as asked for")
    if allowed is None:
        has_mask = hasattr(os, "sched_getaffinity")
        allowed = os.sched_getaffinity(0) if has_mask else range(os.cpu_count() or 1)
    n_cores = count_cores(allowed, root)
    quota = cpu_quota(root)
    if quota is not None and int(quota) < n_cores:
        # Rounded down: a lane on a fraction of a CPU is one the others wait for.
        return ThreadChoice(max(1, int(quota)), f"the control group grants the time of {quota:g} CPUs")
    shared = f" ({len(allowed)} hardware threads)" if len(allowed) > n_cores else ""
    cores = "the physical core" if n_cores == 1 else f"each of {n_cores} physical cores"
    return ThreadChoice(n_cores, f"one for {cores} this process may use{shared}")


def count_cores(allowed: Collection[int], root: Path = Path("/")) -> int:
    """Physical cores with a CPU in `allowed`; every CPU counts as a core where the system does not say."""
    cores = set()
    for cpu in allowed:
        siblings = read_text(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.add(siblings or str(cpu))
    return max(1, len(cores))


def cpu_quota(root: Path = Path("/")) -> float | None:
    """CPUs' worth of time the control groups of this process grant together; None without a limit."""
    quotas = [
        quota for folder, version in group_folders("cpu", root) if (quota := _quota_of(folder, version)) is not None
    ]
    return min(quotas, default=None)


def _quota_of(folder: Path, version: int) -> float | None:
    if version == 2:  # "max 100000" or "150000 100000"
        quota, _, period = read_text(folder / "cpu.max").partition(" ")
    else:  # -1: no limit
        quota, period = read_text(folder / "cpu.cfs_quota_us"), read_text(folder / "cpu.cfs_period_us")
    if not (quota.isdecimal() and period.isdecimal() and int(quota) and int(period)):
        return None
    return int(quota) / int(period)
