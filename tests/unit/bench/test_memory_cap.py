"""The cap of a benchmark's children: it holds, or there is an error; never neither."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from emel.bench.memory_cap import CapError, MemoryCap

if TYPE_CHECKING:
    from pathlib import Path


def test_a_system_without_groups_is_an_error(tmp_path: Path) -> None:
    message = r"^memory cannot be limited here \(systemd does not run here\)\nhint: run as root, "
    with pytest.raises(CapError, match=message):
        MemoryCap(1 << 30, tmp_path)


def test_a_group_takes_the_limit_and_tells_the_peak(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/mine\n", encoding="ascii")
    own = tmp_path / "sys/fs/cgroup/mine"
    own.mkdir(parents=True)
    cap = MemoryCap(12345, tmp_path)
    (group,) = own.iterdir()
    assert (group / "memory.max").read_text(encoding="ascii") == "12345"
    assert cap.peak_bytes() is None
    (group / "memory.peak").write_text("777\n", encoding="ascii")
    assert cap.peak_bytes() == 777
    assert cap.command(["a", "b"])[-3:] == [str(group / "cgroup.procs"), "a", "b"]


def test_a_child_that_takes_more_is_killed() -> None:
    try:
        cap = MemoryCap(48 << 20)
    except CapError as error:
        pytest.skip(str(error))
    with cap:
        taken = "import sys; block = bytearray(int(sys.argv[1])); print(len(block))"
        small = subprocess.run(cap.command([sys.executable, "-c", taken, "1000"]), capture_output=True, check=False)
        large = subprocess.run(cap.command([sys.executable, "-c", taken, str(200 << 20)]), check=False)
        assert small.stdout == b"1000\n"
        assert large.returncode == -9
        peak = cap.peak_bytes()
        assert peak is not None
        assert peak <= 48 << 20
