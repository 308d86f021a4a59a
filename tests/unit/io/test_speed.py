"""How fast a file is read: what is measured, and what is not when calls fail."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from emel.io import speed
from emel.io.speed import ReadSpeeds, measure_reads
from unit.io.fakes import FaultyPlatform

if TYPE_CHECKING:
    from pathlib import Path

CHUNK = 1 << 16


class DirectPlatform(FaultyPlatform):
    """Direct reads that any file system has; `direct_code`: the error that opening for them gives."""

    def __init__(self, fail_at: int = 0, *, direct_code: int = 0) -> None:
        super().__init__(fail_at)
        self.direct_code = direct_code

    def open_direct(self, path: str) -> int:
        if self.direct_code:
            raise OSError(self.direct_code, "no direct reads")
        return self.open(path)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "CHUNK_BYTES", CHUNK)


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "weights"
    file.write_bytes(bytes(10 * CHUNK + 100))
    return str(file)


@pytest.mark.parametrize(
    ("buffered", "direct", "is_direct_better", "best"),
    [
        (100.0, 111.0, True, 111.0),
        (100.0, 75.0, True, 100.0),
        (100.0, 74.0, False, 100.0),
        (100.0, None, False, 100.0),
        (None, 1.0, True, 1.0),
        (None, None, False, None),
    ],
)
def test_direct_reads_are_chosen_unless_they_are_much_slower(
    buffered: float | None, direct: float | None, is_direct_better: bool, best: float | None
) -> None:
    speeds = ReadSpeeds(buffered, direct)
    assert speeds.is_direct_better is is_direct_better
    assert speeds.best == best


def test_both_ways_are_measured_in_whole_chunks_and_nothing_stays_open(path: str) -> None:
    platform = DirectPlatform()
    speeds = measure_reads(path, 10 * CHUNK + 100, seconds=60, platform=platform)
    assert speeds.buffered is not None
    assert speeds.direct is not None
    assert min(speeds.buffered, speeds.direct) > 0
    assert platform.calls == ["open"] * 2 + ["read_into"] * 10 + ["close"] * 2
    platform.assert_nothing_left()


def test_a_measurement_ends_with_its_time(path: str) -> None:
    platform = DirectPlatform()
    measure_reads(path, 10 * CHUNK, seconds=1e-9, platform=platform)
    assert platform.calls == ["open"] * 2 + ["read_into"] * 2 + ["close"] * 2


def test_a_system_without_direct_reads_is_measured_the_other_way(path: str) -> None:
    speeds = measure_reads(path, 10 * CHUNK, platform=DirectPlatform(direct_code=errno.EINVAL))
    assert speeds.direct is None
    assert speeds.buffered is not None


def test_a_file_that_is_smaller_than_a_chunk_has_no_speed(path: str) -> None:
    platform = DirectPlatform()
    assert measure_reads(path, CHUNK - 1, platform=platform) == ReadSpeeds(None, None)
    platform.assert_nothing_left()


def test_a_file_that_shrank_ends_the_measurement(path: str) -> None:
    platform = DirectPlatform()
    speeds = measure_reads(path, 100 * CHUNK, seconds=60, platform=platform)
    assert speeds.buffered is not None
    assert platform.calls.count("read_into") == 2 * 6  # the last one found the end
    platform.assert_nothing_left()


def test_every_failing_call_leaves_a_speed_unknown_and_nothing_open(path: str) -> None:
    for fail_at in range(1, 100):
        platform = DirectPlatform(fail_at)
        speeds = measure_reads(path, 10 * CHUNK, seconds=60, platform=platform)
        platform.assert_nothing_left()
        if not platform.has_failed:
            break
        failed = platform.calls[fail_at - 1]
        assert (None in (speeds.buffered, speeds.direct)) == (failed != "close")
    else:
        pytest.fail("no run passed")


def test_a_moment_in_which_the_machine_is_slow_decides_nothing(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"now": 0.0}

    class Slow(DirectPlatform):
        def read_into(self, descriptor: int, target: memoryview, offset: int) -> int:
            n_read = super().read_into(descriptor, target, offset)
            n_reads = self.calls.count("read_into")
            is_direct = n_reads % 2 == 1
            clock["now"] += (0.001 if is_direct else 0.002) + (0.05 if n_reads <= 4 and is_direct else 0)
            return n_read

    monkeypatch.setattr("time.perf_counter", lambda: clock["now"])
    speeds = measure_reads(path, 10 * CHUNK, seconds=60, platform=Slow())
    assert speeds.direct == pytest.approx(CHUNK / 0.001)
    assert speeds.buffered == pytest.approx(CHUNK / 0.002)
    assert speeds.is_direct_better
