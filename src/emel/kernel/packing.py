"""Weights as the kernels want them: every matrix of a model packed 16 rows wide into one buffer by one native call.

Vectors (norms, biases, frequencies) lie behind the matrices, plain. The source pages are not needed afterwards.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from emel._native import LIBRARY, check
from emel._native import abi as _abi
from emel.kernel.buffers import Memory, address_of
from emel.kernel.dequantize import dequantize
from emel.kernel.sizes import aligned, packed_bytes
from emel.lazy_dataclasses import dataclass
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from typing_extensions import Buffer

    from emel.kernel.pool import LanePool

_BATCH_BYTES = 32 << 20
# fmt: off
PACKABLE = (
    TensorType.F32, TensorType.F16, TensorType.BF16,
    TensorType.Q4_0, TensorType.Q4_1, TensorType.Q5_0, TensorType.Q5_1, TensorType.Q8_0,
    TensorType.Q2_K, TensorType.Q3_K, TensorType.Q4_K, TensorType.Q5_K, TensorType.Q6_K,
    TensorType.IQ1_S, TensorType.IQ1_M, TensorType.IQ2_XXS, TensorType.IQ2_XS, TensorType.IQ2_S,
    TensorType.IQ3_XXS, TensorType.IQ3_S,
    TensorType.IQ4_NL, TensorType.IQ4_XS, TensorType.MXFP4, TensorType.TQ1_0, TensorType.TQ2_0,
)
# fmt: on


@dataclass(frozen=True, slots=True)
class Matrix:
    """A (rows, cols) matrix as a file has it; `data` must live until it is packed. None: it is read (pack_batches)."""

    name: str
    type: TensorType
    rows: int
    cols: int
    data: Buffer | None = None

    @property
    def n_bytes(self) -> int:
        """Bytes of the data."""
        return self.type.n_bytes(self.rows, self.cols)


@dataclass(frozen=True, slots=True)
class Vector:
    """`n` values kept plain: F64 as they are, every other type as float32."""

    name: str
    type: TensorType
    n: int
    data: Buffer

    @property
    def stored_type(self) -> TensorType:
        """The type of the stored values."""
        return TensorType.F64 if self.type is TensorType.F64 else TensorType.F32


@dataclass(frozen=True, slots=True)
class Location:
    """Where a weight lies."""

    address: int
    n_bytes: int


class PackedWeights:
    """The weights of a model in memory of their own: name -> location. `close` gives all of it back."""

    __slots__ = ("_locations", "_memory")

    def __init__(self, memory: Memory, locations: dict[str, Location]) -> None:
        self._memory = memory
        self._locations = locations

    @property
    def n_bytes(self) -> int:
        """Bytes of all weights with their padding."""
        return self._memory.n_bytes

    def locate(self, name: str) -> Location:
        """The location of a weight; KeyError for an unknown name, ValueError once closed."""
        if self._memory.is_closed:
            raise ValueError("these weights were closed")
        return self._locations[name]

    def __contains__(self, name: str) -> bool:
        return name in self._locations

    def close(self) -> None:
        """Gives the memory back; no plan may use it any more."""
        self._memory.close()


def pack(pool: LanePool, matrices: Sequence[Matrix], vectors: Iterable[Vector] = ()) -> PackedWeights:
    """Packs matrices, which have their data, over the pool's lanes and copies the vectors.

    ValueError names the first weight of a type the kernels cannot read, of a wrong size, or of a repeated name.
    """
    if absent := [matrix.name for matrix in matrices if matrix.data is None]:
        raise ValueError(f"tensor {absent[0]!r} has no data")

    def fill(places: Mapping[str, Location]) -> None:
        _pack_batch(pool, [(matrix, address_of(matrix.data or b"")) for matrix in matrices], places)

    return pack_around([], tuple(vectors), fill, matrices)


def pack_around(
    sizes: Sequence[tuple[str, int]],
    vectors: Sequence[Vector],
    fill: Callable[[Mapping[str, Location]], None],
    matrices: Sequence[Matrix] = (),
) -> PackedWeights:
    """Memory for weights of (name, packed bytes) and matrices, which `fill` writes into it, and vectors behind them.

    ValueError as `pack` raises it; what `fill` raises comes through, and the memory is given back.
    """
    _check_vectors(vectors)
    stored = [(vector.name, vector.stored_type.row_bytes(vector.n)) for vector in vectors]
    locations, total = _layout([*sizes, *_packed_sizes(matrices), *stored])
    memory = Memory(max(total, 1), is_huge=True)
    placed = {name: Location(memory.address + offset, n_bytes) for name, (offset, n_bytes) in locations.items()}
    try:
        fill(placed)
        for vector in vectors:
            _store(vector, placed[vector.name])
    except BaseException:
        memory.close()
        raise
    return PackedWeights(memory, placed)


def pack_batches(
    pool: LanePool,
    matrices: Sequence[Matrix],
    places: Mapping[str, Location],
    read: Callable[[str, memoryview], None],
) -> None:
    """Packs matrices that are read first: `read` gets a name and the bytes to fill, in the order given.

    One buffer of some tens of megabytes serves all of them. What `read` raises comes through.
    """
    if not matrices:
        return
    batches = list(_batches(matrices))
    staging = Memory(max(1, *(sum(aligned(each.n_bytes) for each in batch) for batch in batches)), is_huge=True)
    try:
        for batch in batches:
            sources = []
            offset = 0
            for matrix in batch:
                with staging.view("B", offset, matrix.n_bytes) as target:
                    read(matrix.name, target)
                sources.append((matrix, staging.address + offset))
                offset += aligned(matrix.n_bytes)
            _pack_batch(pool, sources, places)
    finally:
        staging.close()


def _pack_batch(pool: LanePool, sources: Sequence[tuple[Matrix, int]], places: Mapping[str, Location]) -> None:
    jobs = (_abi.PackJob * len(sources))()
    for job, (matrix, address) in zip(jobs, sources, strict=True):
        _fill_job(job, matrix, address, places[matrix.name])
    check(LIBRARY.emel_pack(pool.handle, jobs, len(sources)))


def check_packable(name: str, type_: TensorType) -> None:
    """ValueError naming the weight, its type and what is supported, unless the kernels read that type."""
    if type_ not in PACKABLE:
        supported = ", ".join(each.name for each in PACKABLE)
        raise ValueError(
            f"tensor {name!r} is {type_.name}, which EMEL cannot compute with yet; supported are {supported}: "
            "use a file in one of these formats"
        )


def _batches(matrices: Sequence[Matrix]) -> Iterator[Sequence[Matrix]]:
    """The matrices in order, cut where the data of a run reaches _BATCH_BYTES."""
    begin = n_bytes = 0
    for end, matrix in enumerate(matrices, 1):
        n_bytes += matrix.n_bytes
        if n_bytes >= _BATCH_BYTES or end == len(matrices):
            yield matrices[begin:end]
            begin, n_bytes = end, 0


def _packed_sizes(matrices: Sequence[Matrix]) -> list[tuple[str, int]]:
    sizes = []
    for matrix in matrices:
        check_packable(matrix.name, matrix.type)
        if matrix.data is not None:
            _check_source(matrix.name, matrix.data, matrix.n_bytes)
        sizes.append((matrix.name, packed_bytes(matrix.type, matrix.rows, matrix.cols)))
    return sizes


def _check_vectors(vectors: Sequence[Vector]) -> None:
    for vector in vectors:
        if vector.type is not TensorType.F64:
            check_packable(vector.name, vector.type)
        _check_source(vector.name, vector.data, vector.type.row_bytes(vector.n))


def _layout(sizes: Sequence[tuple[str, int]]) -> tuple[dict[str, tuple[int, int]], int]:
    """name -> (offset, bytes), and the bytes of everything."""
    locations: dict[str, tuple[int, int]] = {}
    offset = 0
    for name, n_bytes in sizes:
        if name in locations:
            raise ValueError(f"weight {name!r} was given twice")
        locations[name] = (offset, n_bytes)
        offset += aligned(n_bytes)
    return locations, offset


def _check_source(name: str, data: Buffer, needed: int) -> None:
    with memoryview(data) as view:
        if view.nbytes != needed:
            raise ValueError(f"tensor {name!r} has {view.nbytes} bytes, its type and shape need {needed}")


def _fill_job(job: _abi.PackJob, matrix: Matrix, source: int, location: Location) -> None:
    job.src = source
    job.src_bytes = matrix.n_bytes
    job.dst = location.address
    job.dst_bytes = location.n_bytes
    job.rows = matrix.rows
    job.cols = matrix.cols
    job.type = int(matrix.type)


def _store(vector: Vector, location: Location) -> None:
    plain = vector.type is vector.stored_type
    values: Buffer = vector.data if plain else dequantize(vector.type, vector.data, vector.n)
    if location.n_bytes:
        ctypes.memmove(location.address, address_of(values), location.n_bytes)
