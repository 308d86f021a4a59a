"""The machine and the software a benchmark ran on: figures without these say nothing."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from emel.errors import EmelError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from emel import Model
    from emel.kernel.features import Route


def cpu_name(cpuinfo: str | None = None) -> str:
    """The processor's own name, from the text of /proc/cpuinfo where there is one."""
    if cpuinfo is None:
        try:
            cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        except OSError:
            cpuinfo = ""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name" and value.strip():
            return value.strip()
    return platform.processor() or platform.machine()


def n_cpus() -> int:
    """CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def choose_lanes(asked: Sequence[int] | None) -> Sequence[int]:
    """The thread counts asked for, else one and all CPUs. EmelError for more than a pool can have."""
    if asked is None:
        return sorted({1, n_cpus()})
    from emel.kernel.pool import MAX_LANES

    if max(asked) > MAX_LANES:
        raise EmelError(f"--threads: {max(asked)} is more than {MAX_LANES}, the most a pool can have")
    return asked


def route_name(model: Model) -> str:
    """The kernels a model runs on, and its activations where they are not the default."""
    return model.isa if model.activations == "int16" else f"{model.isa} {model.activations}"


def open_route() -> Route:
    """The kernels' route of this run, as EMEL_ISA says or the best. EmelError when it does not run here."""
    from emel.kernel.features import choose_route

    try:
        return choose_route()
    except ValueError as error:
        raise EmelError(str(error)) from error


def emel_version() -> str:
    """The installed version."""
    try:
        return version("emel")
    except PackageNotFoundError:
        return "(source tree, not installed)"


def counted(number: int, noun: str) -> str:
    """`1 thread`, `2 threads`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def machine_line(machine: Mapping[str, str | int]) -> str:
    """The first line above a table."""
    cpus = counted(int(machine["cpus"]), "CPU")
    return f"machine  {machine['cpu']}, {cpus}, {machine['system']}, Python {machine['python']}"


def excess_load() -> float | None:
    """CPUs' worth of programs that ran or waited to, on average over the last minute, if more than there are CPUs."""
    load = os.getloadavg()[0]
    return load if load > (os.cpu_count() or 1) else None


def describe_machine() -> dict[str, str | int]:
    """What goes above every table, by name."""
    return {
        "cpu": cpu_name(),
        "cpus": n_cpus(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
    }
