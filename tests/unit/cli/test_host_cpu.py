"""CPUs, quotas and the thread count they come to, from fake /proc and /sys trees."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from emel.cli.host_cpu import read_host_cpu

if TYPE_CHECKING:
    from pathlib import Path


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def topology(n_cores: int) -> dict[str, str]:
    """CPUs 0 .. 2n-1, where i and i + n share a core."""
    return {
        f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": f"{cpu % n_cores},{cpu % n_cores + n_cores}\n"
        for cpu in range(2 * n_cores)
    }


@pytest.fixture(autouse=True)
def sixteen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 16)


def test_one_thread_for_each_physical_core(tmp_path: Path) -> None:
    cpu = read_host_cpu(write(tmp_path, topology(8)), range(16))
    assert (cpu.n_logical, cpu.n_allowed, cpu.n_cores, cpu.quota, cpu.n_threads) == (16, 16, 8, None, 8)
    assert cpu.reason == "one for each physical core this process may use"


def test_affinity_counts_cores_not_siblings(tmp_path: Path) -> None:
    cpu = read_host_cpu(write(tmp_path, topology(8)), {0, 8, 1})
    assert (cpu.n_allowed, cpu.n_cores, cpu.n_threads) == (3, 2, 2)
    assert cpu.reason == "one for each physical core of the 3 CPUs (of 16) in the affinity mask"


@pytest.mark.parametrize(
    ("text", "quota", "n_threads"),
    [
        ("200000 100000", 2.0, 2),
        ("250000 100000", 2.5, 2),
        ("50000 100000", 0.5, 1),
        ("max 100000", None, 8),
        ("1600000 100000", 16.0, 8),  # more than the cores there are
        ("", None, 8),
        ("nonsense", None, 8),
    ],
)
def test_quota_of_a_v2_group(text: str, quota: float | None, n_threads: int, tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": text}
    cpu = read_host_cpu(write(tmp_path, topology(8) | files), range(16))
    assert (cpu.quota, cpu.n_threads) == (quota, n_threads)
    assert ("the control group grants the time of" in cpu.reason) == (n_threads < 8)


@pytest.mark.parametrize(("quota_us", "quota"), [("150000", 1.5), ("-1", None), ("0", None)])
def test_quota_of_a_v1_group(quota_us: str, quota: float | None, tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/cpu"
    files = {
        "proc/self/cgroup": "1:cpu,cpuacct:/docker/x\n",
        f"{folder}/cpu.cfs_quota_us": quota_us,
        f"{folder}/cpu.cfs_period_us": "100000",
    }
    assert read_host_cpu(write(tmp_path, topology(8) | files), range(16)).quota == quota


def test_model_name_comes_from_cpuinfo_or_the_architecture(tmp_path: Path) -> None:
    assert read_host_cpu(tmp_path, [0]).model == os.uname().machine
    root = write(tmp_path, {"proc/cpuinfo": "processor\t: 0\nmodel name\t: A Fine CPU\n"})
    assert read_host_cpu(root, [0]).model == "A Fine CPU"


def test_no_topology_counts_every_cpu(tmp_path: Path) -> None:
    assert read_host_cpu(tmp_path, range(4)).n_cores == 4
