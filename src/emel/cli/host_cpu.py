"""The CPUs this process may use, how many threads suit them and why, and the kernels that run on them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from emel.cli.control_groups import group_folders, read_count, read_text

if TYPE_CHECKING:
    from collections.abc import Collection


@dataclass(frozen=True, slots=True)
class HostCpu:
    """Counts of CPUs; `n_threads` is what they come to, for the reason given."""

    model: str
    n_logical: int
    n_allowed: int
    """Logical CPUs of this process's affinity mask."""
    n_cores: int
    """Physical cores among them."""
    quota: float | None
    """CPUs' worth of time the control groups grant; None without a limit."""
    n_threads: int
    reason: str


def read_host_cpu(root: Path = Path("/"), allowed: Collection[int] | None = None) -> HostCpu:
    """Reads /proc and /sys below `root`; `allowed` are the CPUs of the affinity mask (default: this process's)."""
    n_logical = os.cpu_count() or 1
    if allowed is None:
        has_mask = hasattr(os, "sched_getaffinity")
        allowed = os.sched_getaffinity(0) if has_mask else range(n_logical)
    n_allowed, n_cores, quota = len(allowed), _count_cores(root, allowed), _read_quota(root)
    n_threads, reason = n_cores, "one for each physical core this process may use"
    if quota is not None and quota < n_cores:
        # A fraction of a CPU would make one thread wait for its share while all others wait for it.
        n_threads, reason = max(1, int(quota)), f"the control group grants the time of {quota:g} CPUs"
    elif n_allowed < n_logical:
        reason = f"one for each physical core of the {n_allowed} CPUs (of {n_logical}) in the affinity mask"
    return HostCpu(_model_name(root), n_logical, n_allowed, n_cores, quota, n_threads, reason)


def _model_name(root: Path) -> str:
    for line in read_text(root / "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in {"model name", "Model"} and value.strip():
            return value.strip()
    return os.uname().machine


def _count_cores(root: Path, allowed: Collection[int]) -> int:
    """Cores with at least one allowed CPU; without topology files every CPU counts as one."""
    cores = set()
    for cpu in allowed:
        siblings = read_text(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").strip()
        cores.add(siblings or str(cpu))
    return max(1, len(cores))


def _read_quota(root: Path) -> float | None:
    quotas = []
    for folder, version in group_folders(root, "cpu"):
        if version == 2:
            words = read_text(folder / "cpu.max").split()  # "max 100000" or "150000 100000"
            pair = (int(words[0]), int(words[1])) if len(words) == 2 and words[0].isdecimal() else None
        else:
            quota, period = read_count(folder / "cpu.cfs_quota_us"), read_count(folder / "cpu.cfs_period_us")
            pair = (quota, period) if quota is not None and period is not None else None
        if pair and pair[0] > 0 and pair[1] > 0:
            quotas.append(pair[0] / pair[1])
    return min(quotas, default=None)


@dataclass(frozen=True, slots=True)
class Routes:
    """Names of the kernel families: all this CPU can run, slowest first, and the one used."""

    available: tuple[str, ...]
    chosen: str
    reason: str


def read_routes() -> Routes:
    """Asks the native library; raises ImportError when it cannot be loaded."""
    from emel._native import LIBRARY, abi  # noqa: F401 - abi declares the prototypes

    mask = LIBRARY.emel_isa_mask()
    names = [LIBRARY.emel_isa_name(index) for index in range(mask.bit_length()) if mask >> index & 1]
    available = tuple(name.decode() for name in names if name)
    forced = os.environ.get("EMEL_ISA")
    if forced:
        return Routes(available, forced, "EMEL_ISA says so")
    return Routes(available, available[-1], "the widest this CPU has")
