"""One matrix product as the engine runs it: packed weights, a native plan, lanes; nothing else in the timed call.

    with RandomMatrix(pool, TensorType.Q8_0, 4096, 2048) as matrix, matrix.product(rows=512, n_tokens=8) as product:
        seconds = product.time_calls(10)

The values are arbitrary: no kernel's time depends on them, and nothing in them is infinite, NaN or subnormal.
"""

from __future__ import annotations

import ctypes
import random
from array import array
from time import perf_counter
from typing import TYPE_CHECKING

from emel.errors import EmelError
from emel.graph.allocator import place
from emel.graph.assembler import Assembly
from emel.graph.batch import Batch, KvBinding, Outputs
from emel.graph.capacity import Capacity, value_bytes
from emel.graph.liveness import live_intervals
from emel.graph.ops import Embed, Form, Graph, Heads, Linear, Part, Quantize, Rows, Value, Weight
from emel.graph.plan import Plan
from emel.graph.records import pack_records
from emel.kernel.buffers import address_of, int32_array
from emel.kernel.features import choose_route
from emel.kernel.numerics import DEFAULT_ACTIVATIONS, Activations
from emel.kernel.packing import Location, Matrix, PackedWeights, pack
from emel.kernel.sizes import KV_BLOCK, packed_bytes
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from emel.graph.ops import Operation
    from emel.kernel.pool import LanePool

N_INPUTS = 64  # different tokens; more of them repeat
WEIGHTS, INPUTS = "weights", "inputs"
_PIECE = 1 << 20  # bytes made at once: there is a most that can be
# Every byte lies in 0x2c..0x3b: a float16 scale made of any two is in 2^-4..1, wider floats are small and normal.
_BYTES = bytes(0x2C + value % 16 for value in range(256))


def random_rows(type_: TensorType, rows: int, cols: int) -> bytes:
    """A (rows, cols) matrix of GGUF's bytes, the same each time.

    Nothing in it repeats, but of F32 16,411 numbers do: on Zen 4, weights that repeat came up to 15 % faster.
    """
    n_bytes = type_.n_bytes(rows, cols)
    choose = random.Random(0)  # noqa: S311 - not for secrets
    if type_ is TensorType.F32:
        pattern = array("f", (choose.uniform(-1, 1) for _ in range(min(n_bytes // 4, 16411)))).tobytes()
        return (pattern * (n_bytes // len(pattern) + 1))[:n_bytes]
    pieces = (choose.randbytes(min(_PIECE, n_bytes - at)).translate(_BYTES) for at in range(0, n_bytes, _PIECE))
    return b"".join(pieces)


class RandomMatrix:
    """A packed (rows, cols) matrix of one format, and the tokens it is multiplied with."""

    def __init__(self, pool: LanePool, type_: TensorType, rows: int, cols: int) -> None:
        self.pool, self.type, self.rows, self.cols = pool, type_, rows, cols
        matrices = (
            Matrix(INPUTS, TensorType.F32, N_INPUTS, cols, random_rows(TensorType.F32, N_INPUTS, cols)),
            Matrix(WEIGHTS, type_, rows, cols, random_rows(type_, rows, cols)),
        )
        self._packed = pack(pool, matrices)

    def product(
        self,
        *,
        rows: int,
        n_tokens: int,
        pool: LanePool | None = None,
        activations: Activations = DEFAULT_ACTIVATIONS,
    ) -> Product:
        """The first `rows` rows times `n_tokens` tokens, on this matrix's pool or another one."""
        if not 1 <= rows <= self.rows:
            raise ValueError(f"{rows} rows of a matrix of {self.rows}")
        weights = _FirstRows(self._packed, self.type, rows, self.cols)
        return Product(pool or self.pool, weights, n_tokens, activations)

    def close(self) -> None:
        """Gives the memory back; no product of it may run any more."""
        self._packed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _FirstRows:
    """Weights of which the matrix has fewer rows: groups of rows lie one after the other."""

    def __init__(self, packed: PackedWeights, type_: TensorType, rows: int, cols: int) -> None:
        self.packed, self.type, self.rows, self.cols = packed, type_, rows, cols

    def locate(self, name: str, /) -> Location:
        location = self.packed.locate(name)
        return location if name == INPUTS else Location(location.address, packed_bytes(self.type, self.rows, self.cols))

    def graph(self) -> Graph:
        """out = weights . inputs[token]; all but the product lies in segment 0. No model: it ends without logits."""
        inputs = Weight(0, INPUTS, N_INPUTS, self.cols, TensorType.F32, is_packed=True)
        weights = Weight(1, WEIGHTS, self.rows, self.cols, self.type, is_packed=True)
        x = Value(0, "x", Rows.TOKENS, self.cols)
        operations: list[Operation] = [Embed(out=x, weight=inputs, layer=0, segment=0)]
        values = [x]
        if self.type.is_quantized:
            values.append(Value(1, "x.q", Rows.TOKENS, self.cols, Form.QUANTIZED))
            operations.append(Quantize(x=x, out=values[-1], layer=0, segment=0))
        out = Value(len(values), "out", Rows.TOKENS, self.rows)
        operations.append(Linear(x=values[-1], parts=(Part(out=out, weight=weights),), layer=0, segment=1))
        heads = Heads(1, 1, 32)
        return Graph(tuple(operations), (*values, out), (inputs, weights), heads, 1, 0, N_INPUTS)


def _place(graph: Graph, capacity: Capacity) -> Assembly:
    n_bytes = value_bytes(graph, capacity)
    placement = place(live_intervals(graph, n_bytes))
    return Assembly(graph, capacity, n_bytes, placement, pack_records(graph, placement, n_bytes))


class Product:
    """A planned product whose activations are ready; a context manager."""

    def __init__(self, pool: LanePool, weights: _FirstRows, n_tokens: int, activations: Activations) -> None:
        self.n_multiply_adds = weights.rows * weights.cols * n_tokens
        self.n_weight_bytes = packed_bytes(weights.type, weights.rows, weights.cols)
        self._pool = pool
        n_blocks = -(-n_tokens // KV_BLOCK)
        graph = weights.graph()
        assembly = _place(graph, Capacity(n_tokens, 1, 1, n_blocks, activations=activations))
        self._n_out_bytes = n_tokens * weights.rows * 4
        self._out_offset = assembly.placement.offsets[graph.values[-1].index]
        self._blocks = int32_array(n_blocks)
        self._batch = Batch(assembly.capacity, N_INPUTS, KvBinding(0, 0, address_of(self._blocks), 1, n_blocks))
        for index in range(n_blocks):
            self._blocks[index] = index
        self._batch.add([index % N_INPUTS for index in range(n_tokens)], 0, 0, outputs=Outputs.NONE)
        self._plan = Plan(assembly, weights, choose_route().isa)
        self._plan.ensure_arena()
        self._plan.bind(self._batch)
        self.run()
        self._batch.record.segment_begin = 1

    def run(self) -> None:
        """Multiplies once. EmelError when the native library refuses."""
        if self._plan.run(self._pool, self._batch):
            raise EmelError("the native library refused a product it had planned")

    def time_calls(self, n_calls: int) -> float:
        """Seconds of that many products."""
        begin = perf_counter()
        for _ in range(n_calls):
            self.run()
        return perf_counter() - begin

    def count_calls(self, seconds: float) -> int:
        """How many products take about that long; at least 1."""
        self.run()
        return max(1, round(seconds / min(self.time_calls(1) for _ in range(3))))

    def bits(self) -> bytes:
        """(n_tokens, rows) float32: the results of the last run."""
        return ctypes.string_at(self._batch.record.arena + self._out_offset, self._n_out_bytes)

    def close(self) -> None:
        """Gives the plan and its memory back; harmless when repeated."""
        self._plan.close()
        self._batch.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
