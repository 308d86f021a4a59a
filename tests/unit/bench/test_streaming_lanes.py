"""What a lane measures is cold: pages that stay in the cache are seen, and the lane is not run."""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING

import pytest

from emel.bench.lane import EMEL
from emel.bench.streaming_lanes import Conditions, cached_share, drop_from_cache, kept_elsewhere, make_cold, measure
from emel.io.parts import FilePart

if TYPE_CHECKING:
    from pathlib import Path

N_BYTES = 16 << 20


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Written to the disk, and still in the cache."""
    path = tmp_path / "weights"
    with path.open("wb") as target:
        target.write(bytes(N_BYTES))
        target.flush()
        os.fsync(target.fileno())
    path.read_bytes()
    if cached_share(str(path)) == 0:
        pytest.skip("this file system does not say what is cached")
    return path


def test_what_was_just_written_can_be_dropped(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(N_BYTES))
    if cached_share(str(path)) == 0:
        pytest.skip("this file system does not say what is cached")
    assert make_cold([FilePart(str(path), N_BYTES)]) == ""


def test_what_is_dropped_is_in_the_cache_no_more(file: Path) -> None:
    assert cached_share(str(file)) == 1
    drop_from_cache(str(file))
    assert cached_share(str(file)) < 0.5


def test_a_file_that_stays_in_the_cache_is_not_measured(file: Path) -> None:
    conditions = Conditions(file, (FilePart(str(file), N_BYTES),), 1, 1 << 30, 1)
    with file.open("rb") as source, mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as mapping:
        assert sum(mapping[:: mmap.PAGESIZE]) == 0  # every page is mapped
        figures = measure("lane", EMEL, conditions, None)
    assert figures.failure == f"{file} stays in the page cache, outside of the limit: something maps or reads it"
    assert figures.tokens_per_second is None


def test_a_file_that_another_process_read_meanwhile_is_seen(file: Path) -> None:
    parts = (FilePart(str(file), N_BYTES),)
    assert kept_elsewhere(Conditions(file, parts, 1, N_BYTES // 2, 1)) == (
        "17 MB of the file are in the page cache: something else read it meanwhile"
    )
    assert kept_elsewhere(Conditions(file, parts, 1, N_BYTES, 1)) == ""
