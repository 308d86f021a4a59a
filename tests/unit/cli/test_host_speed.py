"""The measurements give something plausible, and nothing where nothing can be measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from emel.cli import host_speed
from emel.cli.host_speed import measure_disk_bandwidth, measure_memory_bandwidth


@pytest.mark.parametrize("n_threads", [1, 3])
def test_memory_bandwidth_is_plausible(n_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_speed, "MEMORY_BYTES", 8 << 20)
    assert 1e8 < measure_memory_bandwidth(n_threads, n_rounds=2) < 1e13


def test_disk_bandwidth_of_a_file_is_positive_or_unknown(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(9 << 20))
    found = measure_disk_bandwidth(path)
    assert found is None or found > 0


def test_disk_bandwidth_is_unknown_for_what_cannot_be_read(tmp_path: Path) -> None:
    assert measure_disk_bandwidth(tmp_path / "gone") is None
    (tmp_path / "empty").touch()
    assert measure_disk_bandwidth(tmp_path / "empty") is None
    assert measure_disk_bandwidth(Path("/proc/self/status")) is None
