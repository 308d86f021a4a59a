"""Invariant: a plan with any one field changed is refused, or runs without touching a byte outside its memory."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emel._native import LIBRARY, NativeError, abi
from emel.graph.assembler import Assembly, assemble
from emel.graph.batch import Batch, KvBinding, Outputs
from emel.graph.capacity import Capacity
from emel.graph.plan import Plan
from emel.kernel.buffers import Memory, address_of, int32_array
from emel.kernel.pool import LanePool
from emel.kernel.sizes import kv_bytes
from unit.graph.tiny import F16, F32, Q8, Tiny, pack_weights, raw_weights

if TYPE_CHECKING:
    from emel.kernel.packing import PackedWeights

CAPACITY = Capacity(4, 2, 1, 2)
TINY = Tiny(
    types=(Q8, Q8, F16, Q8, Q8, F32, Q8, Q8),
    has_bias=True,
    norms_heads=True,
    norms_results=True,
    norms_inputs=False,
    has_sinks=True,
    window=3,
    cap=5.0,
    n_experts=4,
)
GUARD = 1 << 16
CANARY = 0xA5

INTERESTING = st.one_of(
    st.sampled_from([0, 1, 2, 3, 16, 31, 32, 64, 4096, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1]),
    st.sampled_from([2**32, 2**63, abi.LOGITS, abi.NONE, 2**64 - 64]),
    st.integers(0, 2**64 - 1),
)


class GuardedMemory:
    """Memory with canaries before and behind it."""

    def __init__(self, n_bytes: int) -> None:
        self._memory = Memory(n_bytes + 2 * GUARD)
        self.n_bytes = n_bytes
        self.address = self._memory.address + GUARD
        for offset in (0, GUARD + n_bytes):
            ctypes.memset(self._memory.address + offset, CANARY, GUARD)

    def is_intact(self) -> bool:
        return all(
            ctypes.string_at(self._memory.address + offset, GUARD) == bytes([CANARY]) * GUARD
            for offset in (0, GUARD + self.n_bytes)
        )

    def close(self) -> None:
        self._memory.close()


@cache
def pool() -> LanePool:
    return LanePool(1)


@cache
def weights() -> PackedWeights:
    graph = TINY.build()
    return pack_weights(graph, raw_weights(graph), pool())


def fields_of(record: abi.Op) -> list[tuple[str, int | None]]:
    fields: list[tuple[str, int | None]] = []
    for name, kind in abi.Op._fields_:
        length = getattr(kind, "_length_", None)
        fields += [(name, None)] if length is None else [(name, index) for index in range(length)]
    return fields


def mutate(record: abi.Op, field: tuple[str, int | None], value: int) -> None:
    name, index = field
    if index is None:
        setattr(record, name, value & (2**32 - 1))
    elif name == "param":
        record.param[index] = ctypes.c_float.from_buffer_copy((value & (2**32 - 1)).to_bytes(4, "little")).value
    else:
        getattr(record, name)[index] = value & (2**64 - 1 if name in ("in_", "out") else 2**32 - 1)


def run_guarded(plan: Plan) -> None:
    """Runs with the arena, the cache and the logits between canaries."""
    graph = plan.assembly.graph
    arena = GuardedMemory(plan.assembly.placement.n_bytes)
    kv = GuardedMemory(kv_bytes(graph.n_kv_layers, 2, graph.heads.n_kv_heads, graph.heads.head_dim))
    logits = GuardedMemory(CAPACITY.max_outputs * graph.n_vocab * 4)
    table = int32_array(2)
    table[1] = 1
    batch = Batch(CAPACITY, graph.n_vocab, KvBinding(kv.address, kv.n_bytes, address_of(table), 1, 2))
    plan.ensure_arena()
    for position in (0, 4):
        batch.clear()
        batch.add([1, 2, 3, 4], position, 0, outputs=Outputs.LAST)
        plan.bind(batch)
        batch.record.arena = arena.address
        batch.record.logits = logits.address
        plan.run(pool(), batch)
    assert arena.is_intact()
    assert kv.is_intact()
    assert logits.is_intact()
    for memory in (arena, kv, logits):
        memory.close()
    batch.close()


def try_plan(assembly: Assembly) -> bool:
    """Whether the library took the plan."""
    try:
        plan = Plan(assembly, weights(), int(abi.Isa.SCALAR))
    except NativeError:
        return False
    with plan:
        run_guarded(plan)
    return True


def test_the_plan_that_is_mutated_is_sound() -> None:
    assert try_plan(assemble(TINY.build, CAPACITY))


@given(data=st.data(), value=INTERESTING)
@settings(max_examples=300, deadline=None)
def test_a_mutated_record_is_refused_or_harmless(data: st.DataObject, value: int) -> None:
    assembly = assemble(TINY.build, CAPACITY)
    record = assembly.records[data.draw(st.integers(0, len(assembly.records) - 1))]
    mutate(record, data.draw(st.sampled_from(fields_of(record))), value)
    try_plan(assembly)


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_swapped_operands_are_refused_or_harmless(data: st.DataObject) -> None:
    assembly = assemble(TINY.build, CAPACITY)
    indices = st.integers(0, len(assembly.records) - 1)
    one, other = assembly.records[data.draw(indices)], assembly.records[data.draw(indices)]
    name = data.draw(st.sampled_from(["in_", "out", "weight", "dim", "kind"]))
    if name == "kind":
        one.kind, other.kind = other.kind, one.kind
    else:
        index = data.draw(st.integers(0, 3))
        mine, theirs = getattr(one, name), getattr(other, name)
        mine[index], theirs[index] = theirs[index], mine[index]
    try_plan(assembly)


def tampered(name: str, value: int) -> Plan:
    """The sound plan, with one field of its description changed on the way to the library."""
    create = LIBRARY.emel_plan_create

    def tamper(reference: object, handle: object) -> int:
        desc = ctypes.cast(reference, ctypes.POINTER(abi.PlanDesc)).contents  # type: ignore[arg-type]
        is_wide = dict(abi.PlanDesc._fields_)[name] is ctypes.c_uint64
        small = value & (2**64 - 1 if is_wide else 2**32 - 1)
        if name in ("n_ops", "n_weights"):  # that the arrays are this long is the caller's promise
            small = min(small, getattr(desc, name))
        setattr(desc, name, small)
        return int(create(reference, handle))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("emel.graph.plan.LIBRARY", _Tampered(tamper))
        return Plan(assemble(TINY.build, CAPACITY), weights(), int(abi.Isa.SCALAR))


@given(name=st.sampled_from([n for n, _ in abi.PlanDesc._fields_ if n not in {"ops", "weights"}]), value=INTERESTING)
@settings(max_examples=150, deadline=None)
def test_a_mutated_description_is_refused_or_harmless(name: str, value: int) -> None:
    try:
        plan = tampered(name, value)
    except NativeError:
        return
    with plan:
        run_guarded(plan)


@pytest.mark.parametrize(("name", "value"), [("isa", 77), ("arena_bytes", 64), ("n_ops", 0), ("n_vocab", 51)])
def test_a_bad_description_is_refused(name: str, value: int) -> None:
    with pytest.raises(NativeError):
        tampered(name, value)


class _Tampered:
    """The library, with another emel_plan_create."""

    def __init__(self, create: object) -> None:
        self.emel_plan_create = create

    def __getattr__(self, name: str) -> object:
        return getattr(LIBRARY, name)
