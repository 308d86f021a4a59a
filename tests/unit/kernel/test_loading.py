"""Matrices that a pool's lanes read and pack to stay: the bytes that packing gives, or one error and nothing left."""

from __future__ import annotations

import ctypes
import errno
import re
from typing import TYPE_CHECKING, Any

import pytest

from emel._native import NativeError
from emel.io.errors import SourceError
from emel.io.lanes import LaneCalls
from emel.io.parts import close_parts, open_parts
from emel.io.platform import SYSTEM
from emel.kernel import loading
from emel.kernel.loading import Computed, load_packed
from emel.kernel.packing import Matrix, Vector
from emel.kernel.pool import LanePool
from emel.tensor.types import TensorType
from unit.tensor.layered_file import FaultyReads, LayeredFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from emel.kernel.packing import PackedWeights
    from emel.tensor.window_layout import Extent

NORM = Vector("norm", TensorType.F32, 4, bytes(range(16)))


@pytest.fixture
def file(tmp_path: Path) -> LayeredFile:
    return LayeredFile(tmp_path / "layers")


@pytest.fixture(params=[1, 2, 3])
def pool(request: pytest.FixtureRequest) -> Iterator[LanePool]:
    with LanePool(request.param) as pool:
        yield pool


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks that hold some of the matrices only."""
    monkeypatch.setattr(loading, "_CHUNK_BYTES", 1 << 16)


def extents_of(file: LayeredFile) -> list[Extent]:
    return [extent for unit in file.units for extent in unit]


def load(
    pool: LanePool,
    file: LayeredFile,
    extents: Sequence[Extent],
    *,
    computed: Computed | None = None,
    calls: LaneCalls | None = None,
    keeps_cache: bool = True,
) -> PackedWeights:
    opened = open_parts(SYSTEM, file.parts)
    try:
        return load_packed(pool, opened, extents, [NORM], computed=computed, calls=calls, keeps_cache=keeps_cache)
    finally:
        close_parts(SYSTEM, opened)


def content(weights: PackedWeights, name: str) -> bytes:
    location = weights.locate(name)
    return ctypes.string_at(location.address, location.n_bytes)


def test_matrices_and_vectors_lie_where_they_are_located(file: LayeredFile, pool: LanePool) -> None:
    shuffled = sorted(extents_of(file), key=lambda extent: extent.name[::-1])
    weights = load(pool, file, shuffled)
    for extent in shuffled:
        assert content(weights, extent.name) == file.packed[extent.name]
    assert content(weights, "norm") == NORM.data
    weights.close()


@pytest.mark.usefixtures("small_chunks")
def test_more_matrices_than_are_handed_over_at_a_time_are_loaded(tmp_path: Path, pool: LanePool) -> None:
    file = LayeredFile(tmp_path / "deep", n_layers=300)
    extents = extents_of(file)
    assert len(extents) == 600
    weights = load(pool, file, extents)
    assert all(content(weights, extent.name) == file.packed[extent.name] for extent in extents)
    weights.close()


def test_every_byte_is_read_once_and_in_order_by_one_lane(file: LayeredFile) -> None:
    reads: list[tuple[int, int]] = []
    faulty = FaultyReads(file.path)

    def read(descriptor: int, address: int, n_bytes: int, offset: int) -> int:
        reads.append((offset, n_bytes))
        return faulty.read(descriptor, address, n_bytes, offset)

    with LanePool(1) as pool:
        load(pool, file, extents_of(file), calls=LaneCalls(read=read)).close()
    first, last = extents_of(file)[0], extents_of(file)[-1]
    assert reads == [(first.offset, last.end - first.offset)]


@pytest.mark.parametrize("keeps_cache", [True, False])
def test_the_page_cache_is_given_up_only_when_that_is_asked_for(file: LayeredFile, *, keeps_cache: bool) -> None:
    given_up: list[tuple[int, int]] = []

    def advise(_descriptor: int, offset: int, n_bytes: int, is_ahead: bool) -> None:
        assert not is_ahead
        given_up.append((offset, n_bytes))

    with LanePool(1) as pool:
        load(pool, file, extents_of(file), calls=LaneCalls(advise=advise), keeps_cache=keeps_cache).close()
    assert bool(given_up) is not keeps_cache


def test_matrices_that_are_computed_lie_among_the_others(file: LayeredFile, pool: LanePool) -> None:
    extents = extents_of(file)
    data = file.path.read_bytes()
    computed = {each.name: each for each in extents[3:5]}
    asked = []

    def read(name: str, target: memoryview) -> None:
        asked.append(name)
        target[:] = data[computed[name].offset : computed[name].end]

    matrices = [Matrix(each.name, each.type, each.rows, each.cols) for each in computed.values()]
    rest = [extent for extent in extents if extent.name not in computed]
    weights = load(pool, file, rest, computed=Computed(matrices, read))
    assert asked == list(computed)
    assert all(content(weights, extent.name) == file.packed[extent.name] for extent in extents)
    weights.close()


def test_without_matrices_no_file_is_needed(pool: LanePool) -> None:
    weights = load_packed(pool, [], [], [NORM])
    assert content(weights, "norm") == NORM.data
    weights.close()


@pytest.mark.usefixtures("small_chunks")
def test_whichever_read_fails_is_the_one_error(tmp_path: Path, pool: LanePool) -> None:
    file = LayeredFile(tmp_path / "deep", n_layers=100)
    extents = extents_of(file)
    fail_at, error = 0, None
    while fail_at == 0 or error is not None:
        fail_at += 1
        reads = FaultyReads(file.path, fail_at)

        def load_it(calls: Any = reads.calls) -> None:
            load(pool, file, extents, calls=calls).close()

        error = error_of(load_it)
        if error is not None:
            assert re.fullmatch(rf"cannot read {str(file.path)!r} at byte \d+: Input/output error", str(error))
    assert reads.n_calls == fail_at - 1
    assert fail_at > 5


def error_of(act: Callable[[], None]) -> SourceError | None:
    try:
        act()
    except SourceError as error:
        return error
    return None


def test_no_memory_for_a_read_is_told(file: LayeredFile, pool: LanePool) -> None:
    reads = FaultyReads(file.path, 1, code=errno.ENOMEM)
    with pytest.raises(SourceError, match="Cannot allocate memory"):
        load(pool, file, extents_of(file), calls=reads.calls)


def test_a_file_that_ended_before_it_was_opened_is_refused(file: LayeredFile, pool: LanePool) -> None:
    extents = extents_of(file)
    file.path.write_bytes(file.path.read_bytes()[: extents[3].end - 1])
    with pytest.raises(NativeError, match="ends beyond the file's"):
        load(pool, file, extents)


def test_a_file_that_shrinks_while_it_is_read_is_one_error(file: LayeredFile, pool: LanePool) -> None:
    extents = extents_of(file)
    n_bytes = file.n_bytes
    reads = FaultyReads(file.path)
    reads.content = reads.content[: extents[3].end - 1]
    with pytest.raises(SourceError, match=f"shrank from {n_bytes} to at most {extents[3].end - 1} bytes"):
        load(pool, file, extents, calls=reads.calls)
