"""Lane counts on machines made of files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emel.kernel.threads import choose_threads, count_cores, cpu_quota

if TYPE_CHECKING:
    from pathlib import Path


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def siblings(cpu: int, text: str) -> dict[str, str]:
    return {f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": text + "\n"}


SMT = siblings(0, "0,2") | siblings(1, "1,3") | siblings(2, "0,2") | siblings(3, "1,3")


def test_threads_count_physical_cores_first(tmp_path: Path) -> None:
    root = write(tmp_path, SMT)
    choice = choose_threads(root=root, allowed={0, 1, 2, 3})
    assert choice.n_threads == 2
    assert choice.reason == "one for each of 2 physical cores this process may use (4 hardware threads)"


def test_threads_follow_the_affinity_mask(tmp_path: Path) -> None:
    root = write(tmp_path, SMT)
    assert choose_threads(root=root, allowed={0, 2}).n_threads == 1
    assert choose_threads(root=root, allowed={0, 2}).reason.startswith("one for the physical core")


def test_cores_without_topology_are_the_cpus(tmp_path: Path) -> None:
    assert count_cores({0, 1, 5}, tmp_path) == 3
    assert count_cores(set(), tmp_path) == 1


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2.0),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000",
                "sys/fs/cgroup/a/cpu.max": "150000 100000",
                "sys/fs/cgroup/cpu.max": "400000 100000",
            },
            1.5,
        ),
        # inside a container, the path told is the host's
        ({"proc/self/cgroup": "0::/docker/123\n", "sys/fs/cgroup/cpu.max": "300000 100000"}, 3.0),
        (
            {
                "proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/x\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000\n",
            },
            0.5,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu:/x\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000\n",
            },
            None,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu:/\n0::/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "250000",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
                "sys/fs/cgroup/unified/cpu.max": "400000 100000",
            },
            2.5,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "0 0"}, None),
        ({"proc/self/cgroup": "nonsense\n", "sys/fs/cgroup/cpu.max": "nonsense"}, None),
    ],
)
def test_quota_is_the_tightest_of_all_groups(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    assert cpu_quota(write(tmp_path, files)) == quota


@pytest.mark.parametrize(("quota", "n_threads"), [(50000, 1), (150000, 1), (250000, 2), (350000, 3)])
def test_threads_stay_within_the_quota(tmp_path: Path, quota: int, n_threads: int) -> None:
    root = write(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": f"{quota} 100000"})
    choice = choose_threads(root=root, allowed=range(16))
    assert choice.n_threads == n_threads
    assert choice.reason == f"the control group grants the time of {quota / 100000:g} CPUs"


def test_threads_below_the_quota_do_not_mention_it(tmp_path: Path) -> None:
    root = write(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "400000 100000"})
    assert choose_threads(root=root, allowed={0, 1}).reason == "one for each of 2 physical cores this process may use"


def test_threads_asked_for_are_used() -> None:
    assert choose_threads(7).n_threads == 7
    for n_threads in (0, 257):
        with pytest.raises(ValueError, match=f"{n_threads} threads were asked for: 1 to 256 are allowed"):
            choose_threads(n_threads)


def test_threads_of_this_machine_are_at_least_one() -> None:
    assert choose_threads().n_threads >= 1
