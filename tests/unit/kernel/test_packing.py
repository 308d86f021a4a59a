from __future__ import annotations

import ctypes
import itertools
from array import array
from typing import TYPE_CHECKING, Literal

import gguf
import numpy as np
import pytest

from emel.kernel.buffers import address_of
from emel.kernel.packing import (
    Matrix,
    PackedWeights,
    Vector,
    check_packable,
    pack,
    pack_around,
    pack_batches,
)
from emel.kernel.pool import LanePool
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def pool() -> Iterator[LanePool]:
    with LanePool(2) as pool:
        yield pool


def matrix(name: str, type_: TensorType, rows: int, cols: int, seed: int = 0) -> Matrix:
    values = np.random.default_rng(seed).standard_normal((rows, cols)).astype(np.float32)
    return Matrix(
        name, type_, rows, cols, gguf.quants.quantize(values, gguf.GGMLQuantizationType(int(type_))).tobytes()
    )


def vector(name: str, values: list[float]) -> Vector:
    return Vector(name, TensorType.F32, len(values), array("f", values))


def test_pack_places_everything_aligned_and_apart(pool: LanePool) -> None:
    matrices = [matrix("a", TensorType.Q8_0, 17, 64), matrix("b", TensorType.F16, 5, 32)]
    weights = pack(pool, matrices, [vector("c", [1.0, 2.0, 3.0])])
    locations = sorted((weights.locate(name) for name in "abc"), key=lambda each: each.address)
    assert all(each.address % 64 == 0 for each in locations)
    for low, high in itertools.pairwise(locations):
        assert low.address + low.n_bytes <= high.address
    assert "a" in weights
    assert "d" not in weights
    with pytest.raises(KeyError):
        weights.locate("d")
    weights.close()


@pytest.mark.parametrize("n_lanes", [1, 3])
def test_pack_gives_the_same_bytes_on_any_lanes(pool: LanePool, n_lanes: int) -> None:
    matrices = [matrix(str(i), TensorType.Q4_1, 16 * i + 3, 96, seed=i) for i in range(5)]

    def packed(lanes: LanePool) -> list[bytes]:
        weights = pack(lanes, matrices)
        found = [weights.locate(str(i)) for i in range(5)]
        raw = [ctypes.string_at(each.address, each.n_bytes) for each in found]
        weights.close()
        return raw

    with LanePool(n_lanes) as other:
        assert packed(pool) == packed(other)


def test_pack_keeps_vectors_plain(pool: LanePool) -> None:
    half = Vector("half", TensorType.F16, 3, np.array([0.5, -2.0, 65504.0], np.float16).tobytes())
    double = Vector("double", TensorType.F64, 2, array("d", [0.1, 1e300]))
    weights = pack(pool, [], [vector("single", [0.1, 2.0]), half, double])

    def values(name: str, code: Literal["f", "d"]) -> list[float]:
        location = weights.locate(name)
        return array(code, ctypes.string_at(location.address, location.n_bytes)).tolist()

    assert values("single", "f") == array("f", [0.1, 2.0]).tolist()
    assert values("half", "f") == [0.5, -2.0, 65504.0]
    assert values("double", "d") == [0.1, 1e300]
    assert double.stored_type is TensorType.F64
    weights.close()


def read_packed(pool: LanePool, matrices: list[Matrix], read: Callable[[str, memoryview], None]) -> PackedWeights:
    return pack_around([], [], lambda places: pack_batches(pool, matrices, places, read), matrices)


def test_batches_are_read_in_order_into_one_buffer(pool: LanePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emel.kernel.packing._BATCH_BYTES", 100)
    given = {name: matrix(name, TensorType.F32, 2, 6, seed=i) for i, name in enumerate("abcde")}  # 48 bytes each
    absent = [Matrix(each.name, each.type, each.rows, each.cols) for each in given.values()]
    targets: list[tuple[str, int]] = []

    def read(name: str, target: memoryview) -> None:
        targets.append((name, address_of(target)))
        data = given[name].data
        assert data is not None
        target[:] = data

    with_data, without = pack(pool, list(given.values())), read_packed(pool, absent, read)
    assert [name for name, _ in targets] == list("abcde")
    base = targets[0][1]
    assert [address - base for _, address in targets] == [0, 64, 128, 0, 64]
    for name in given:
        found = [weights.locate(name) for weights in (with_data, without)]
        one, other = (ctypes.string_at(each.address, each.n_bytes) for each in found)
        assert one == other
    with_data.close()
    without.close()


def test_batches_let_errors_of_reading_through(pool: LanePool) -> None:
    def read(_name: str, _target: memoryview) -> None:
        raise OSError("it shrank")

    absent = Matrix("absent", TensorType.F32, 2, 4)
    with pytest.raises(OSError, match="it shrank"):
        read_packed(pool, [absent], read)
    with pytest.raises(ValueError, match="tensor 'absent' has no data"):
        pack(pool, [absent])


def test_pack_refuses_bad_weights(pool: LanePool) -> None:
    short = Matrix("short", TensorType.F32, 2, 4, bytes(31))
    with pytest.raises(ValueError, match="tensor 'short' has 31 bytes, its type and shape need 32"):
        pack(pool, [short])
    with pytest.raises(ValueError, match="tensor 'v' has 5 bytes, its type and shape need 4"):
        pack(pool, [], [Vector("v", TensorType.F32, 1, bytes(5))])
    twice = matrix("twice", TensorType.F32, 2, 4)
    with pytest.raises(ValueError, match="weight 'twice' was given twice"):
        pack(pool, [twice], [vector("twice", [1.0])])
    with pytest.raises(ValueError, match="tensor 'k' is NVFP4"):
        pack(pool, [Matrix("k", TensorType.NVFP4, 1, 64, bytes(36))])


def test_check_packable_names_tensor_type_and_what_is_supported() -> None:
    with pytest.raises(
        ValueError,
        match=r"tensor 'x' is NVFP4, which EMEL cannot compute with yet; supported are F32, F16, BF16, Q4_0",
    ):
        check_packable("x", TensorType.NVFP4)
    check_packable("x", TensorType.Q4_1)


def test_pack_nothing_is_fine(pool: LanePool) -> None:
    weights = pack(pool, [])
    assert weights.n_bytes >= 1
    weights.close()


def test_closed_weights_are_not_located(pool: LanePool) -> None:
    weights = pack(pool, [matrix("a", TensorType.F32, 2, 4)])
    weights.close()
    weights.close()
    with pytest.raises(ValueError, match="these weights were closed"):
        weights.locate("a")
