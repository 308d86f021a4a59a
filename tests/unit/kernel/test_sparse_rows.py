"""Rows of a matrix read when a batch asks for them: what is asked for is there, within the cache."""

from __future__ import annotations

import ctypes
from mmap import PAGESIZE
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emel.io.errors import SourceError
from emel.kernel.packing import Matrix, pack
from emel.kernel.pool import LanePool
from emel.kernel.sizes import ROW_GROUP, packed_bytes
from emel.kernel.sparse_rows import SparseRows, cached_bytes
from emel.tensor.types import TensorType
from emel.tensor.window_layout import Extent
from unit.io.fakes import FaultyPlatform

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Q8 = TensorType.Q8_0
ROWS, COLS, HEAD = 100, 512, 50  # seven groups, the last one of four rows
N_GROUPS = 7


class Table:
    """A matrix in a file, and what it is in memory."""

    def __init__(self, path: Path, pool: LanePool) -> None:
        self.path, self.pool = path, pool
        data = np.random.default_rng(2).integers(0, 256, Q8.n_bytes(ROWS, COLS), dtype=np.uint8).tobytes()
        path.write_bytes(bytes(HEAD) + data)
        self.extent = Extent("embedding", HEAD, len(data), ROWS, COLS, Q8, packed_bytes(Q8, ROWS, COLS))
        weights = pack(pool, [Matrix("embedding", Q8, ROWS, COLS, data)])
        location = weights.locate("embedding")
        self.packed = ctypes.string_at(location.address, location.n_bytes)
        weights.close()

    def open(self, n_cached: int, platform: FaultyPlatform | None = None) -> SparseRows:
        cache_bytes = n_cached * cached_bytes(self.extent, 1)
        return SparseRows(
            str(self.path), self.extent, self.pool, cache_bytes=cache_bytes, platform=platform or FaultyPlatform()
        )

    def has(self, rows: SparseRows, group: int) -> bool:
        n_bytes = packed_bytes(Q8, ROW_GROUP, COLS)
        begin, end = group * n_bytes, min((group + 1) * n_bytes, len(self.packed))
        return ctypes.string_at(rows.location.address + begin, end - begin) == self.packed[begin:end]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    with LanePool(2) as pool:
        yield Table(tmp_path_factory.mktemp("rows") / "file", pool)


def test_rows_come_in_their_groups_and_are_read_once(table: Table) -> None:
    rows = table.open(N_GROUPS)
    for _ in range(2):
        rows.ensure([3, 5, 40, 99])
    assert [table.has(rows, group) for group in range(N_GROUPS)] == [True, False, True, False, False, False, True]
    assert rows.n_reads == 3
    assert rows.name == "embedding"
    assert rows.location.n_bytes == len(table.packed)
    rows.close()


def test_rows_outside_the_matrix_are_left_to_others(table: Table) -> None:
    rows = table.open(2)
    rows.ensure([-1, ROWS, 1 << 40])
    assert rows.n_reads == 0
    rows.close()


@settings(max_examples=20, deadline=None)
@given(batches=st.lists(st.sets(st.integers(0, ROWS - 1), max_size=4), max_size=8), n_cached=st.integers(1, 3))
def test_any_batches_find_their_rows(table: Table, batches: list[set[int]], n_cached: int) -> None:
    rows = table.open(n_cached)
    for batch in batches:
        rows.ensure(batch)
        assert all(table.has(rows, row // ROW_GROUP) for row in batch)
    rows.close()


def test_a_full_cache_is_emptied_for_what_the_batch_needs(table: Table) -> None:
    rows = table.open(2)
    for row in (0, 16, 0, 32):
        rows.ensure([row])
    assert rows.n_reads == 3
    assert table.has(rows, 2)
    assert not table.has(rows, 0)
    rows.ensure([0, 16, 32])  # more than the cache holds, but one batch
    assert all(table.has(rows, group) for group in range(3))
    rows.close()


def test_cached_bytes_never_exceed_the_whole_matrix(table: Table) -> None:
    sizes = [cached_bytes(table.extent, n_rows) for n_rows in range(1, 200)]
    assert sizes == sorted(sizes)
    assert sizes[0] >= packed_bytes(Q8, ROW_GROUP, COLS)
    assert sizes[-1] == -(-table.extent.packed_bytes // PAGESIZE) * PAGESIZE


@pytest.mark.parametrize("fail_at", [1, 2])
def test_a_file_that_cannot_be_opened_leaves_nothing_open(table: Table, fail_at: int) -> None:
    platform = FaultyPlatform(fail_at)
    with pytest.raises(SourceError, match=r"^cannot open"):
        table.open(3, platform)
    platform.assert_nothing_left()


def test_rows_without_memory_leave_nothing_open(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(n_bytes: int) -> None:
        raise MemoryError(f"cannot allocate {n_bytes} bytes")

    monkeypatch.setattr("emel.kernel.sparse_rows.Memory", refuse)
    platform = FaultyPlatform()
    with pytest.raises(MemoryError):
        table.open(3, platform)
    platform.assert_nothing_left()


@pytest.mark.parametrize("fail_at", [3, 4])  # the reads of two groups
def test_a_failed_read_is_one_error_and_the_next_batch_works(table: Table, fail_at: int) -> None:
    platform = FaultyPlatform(fail_at)
    rows = table.open(3, platform)
    with pytest.raises(SourceError, match=r"^cannot read"):
        rows.ensure([0, 50])
    rows.ensure([0, 50])
    assert table.has(rows, 0)
    assert table.has(rows, 3)
    for _ in range(2):
        rows.close()
    platform.assert_nothing_left()


def test_a_file_that_shrank_is_an_error_that_says_so(table: Table, tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_bytes(table.path.read_bytes())
    rows = SparseRows(str(short), table.extent, table.pool, cache_bytes=1 << 20)
    with short.open("r+b") as file:
        file.truncate(5000)
    with pytest.raises(SourceError, match=r"shrank from 54450 to .* bytes while it was read: fetch it again"):
        rows.ensure([90])
    rows.close()
