"""The suite `graph_processor`: the inline coroutine machine against a plain machine over the same table.

One token through a decoder of one narrow layer with weights of zero, so that what surrounds the native call weighs as
much as it ever can: invalid (the batch is refused), reused (a token of every decode step), alloc (the first run of a
plan, which makes its arena).
"""

from __future__ import annotations

from contextlib import ExitStack
from time import perf_counter
from typing import TYPE_CHECKING, Any

from emel.bench.sm_timing import Bar, calls_of, measure
from emel.graph.assembler import assemble
from emel.graph.attention_ops import Pairing
from emel.graph.batch import Batch, KvBinding
from emel.graph.builder import GraphBuilder
from emel.graph.capacity import Capacity
from emel.graph.lifecycle import Lifecycle
from emel.graph.ops import Heads
from emel.graph.plan import Plan
from emel.graph.processor import Execute, ProcessorContext, ProcessorMachine
from emel.kernel.buffers import Memory, address_of, int32_array
from emel.kernel.features import choose_route
from emel.kernel.packing import Matrix, Vector, pack
from emel.kernel.pool import LanePool
from emel.kernel.sizes import kv_bytes
from emel.sm import Machine
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable

    from emel.bench.sm_timing import Line, Timed
    from emel.graph.ops import Graph
    from emel.kernel.packing import PackedWeights

N_VOCAB, N_BLOCKS = 32, 1
HEADS = Heads(1, 1, 32)
CAPACITY = Capacity(max_tokens=1, max_outputs=1, max_sequences=1, n_blocks=N_BLOCKS)
BARS = {"invalid": 1.3, "reused": 1.1, "alloc": 1.1}


def build() -> Graph:
    """The decoder."""
    b = GraphBuilder(heads=HEADS, n_vocab=N_VOCAB)
    width = HEADS.head_dim
    table = b.rope_table(b.vector("frequencies", width // 2, TensorType.F64))
    x = b.embed(b.matrix("embedding", N_VOCAB, width, TensorType.Q8_0))
    b.begin_layer()
    h = b.rms_norm(x, b.vector("norm", width), 1e-5)
    q, k, v = (b.linear(h, b.matrix(name, width, width, TensorType.Q8_0), None) for name in "qkv")
    a = b.attention(b.rope_store(q, k, v, table, pairing=Pairing.ADJACENT), scale=1.0)
    x, a = b.gather(x), b.gather(a)
    x = b.add(x, b.linear(a, b.matrix("o", width, width, TensorType.Q8_0), None))
    b.end_layers()
    x = b.rms_norm(x, b.vector("norm", width), 1e-5)
    b.argmax(b.logits(x, b.matrix("embedding", N_VOCAB, width, TensorType.Q8_0)))
    return b.finish()


def zero_weights(graph: Graph, pool: LanePool) -> PackedWeights:
    """Its weights."""
    matrices = [
        Matrix(w.name, w.type, w.rows, w.cols, bytes(w.type.n_bytes(w.rows, w.cols)))
        for w in graph.weights
        if w.is_packed
    ]
    vectors = [
        Vector(w.name, w.type, w.cols, bytes(w.type.row_bytes(w.cols))) for w in graph.weights if not w.is_packed
    ]
    return pack(pool, matrices, vectors)


def run(n_runs: int, n_warmup: int) -> list[Line]:
    """Measures the three rows."""
    with ExitStack() as stack:
        pool = stack.enter_context(LanePool(1))
        assembly = assemble(build, CAPACITY)
        weights = zero_weights(assembly.graph, pool)
        stack.callback(weights.close)
        table = int32_array(N_BLOCKS)
        memory = Memory(kv_bytes(assembly.graph.n_kv_layers, N_BLOCKS, HEADS.n_kv_heads, HEADS.head_dim))
        stack.callback(memory.close)
        batch = Batch(CAPACITY, N_VOCAB, KvBinding(memory.address, memory.n_bytes, address_of(table), 1, N_BLOCKS))
        empty = Batch(CAPACITY, N_VOCAB, KvBinding(memory.address, memory.n_bytes, address_of(table), 1, N_BLOCKS))
        batch.add_token(0, 0, 0)
        plan = stack.enter_context(Plan(assembly, weights, choose_route().isa))
        lines = []
        for row, bar in BARS.items():
            subjects = {
                name: _subject(row, dispatch, plan, empty if row == "invalid" else batch)
                for name, dispatch in _dispatches(pool).items()
            }
            bars = {name: Bar(at_most_ratio=bar) for name in ("coroutine", "coroutine, asynchronous")}
            lines += measure(row, subjects, n_runs, n_warmup, bars)
        return lines


def _dispatches(pool: LanePool) -> dict[str, Callable[[Execute], object]]:
    """The three ways to run the same table; each has a machine of its own."""
    attributes = {name: getattr(ProcessorMachine, name) for name in ("INITIAL", "FAILED", "TABLE")}
    plain_class: Any = type("PlainProcessorMachine", (Machine,), {**attributes, "__module__": "benchmark"})
    plain, coroutine, asynchronous = (
        kind(ProcessorContext(pool, Lifecycle())) for kind in (plain_class, ProcessorMachine, ProcessorMachine)
    )

    def dispatch_async(event: Execute) -> None:
        asynchronous.dispatch_async(event).result()

    return {
        "plain": plain.dispatch,
        "coroutine": coroutine.dispatch,
        "coroutine, asynchronous": dispatch_async,
    }


def _subject(row: str, dispatch: Callable[[Execute], object], plan: Plan, batch: Batch) -> Timed:
    if row != "alloc":
        return calls_of(dispatch, Execute(plan, batch))

    def first_runs(n_calls: int) -> float:
        seconds = 0.0
        for _ in range(n_calls):
            with Plan(plan.assembly, plan.weights, plan.route) as fresh:
                event = Execute(fresh, batch)
                begin = perf_counter()
                dispatch(event)
                seconds += perf_counter() - begin
        return seconds / n_calls

    return first_runs
