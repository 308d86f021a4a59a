"""Every check of plan/verify*.cc on plans: one damage each, refused, with what was seen and allowed."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emel._native import LIBRARY, abi
from emel.kernel.pool import LanePool
from native.small_plan import aligned_bytes
from native.sound_plan import BIAS, EMBEDDING, FREQUENCIES, KEY, N_WEIGHTS, NORM, OUTPUT, QUERY, SoundPlan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from native.small_plan import SmallPlan

OK, INVALID, UNSUPPORTED, OUT_OF_BOUNDS = 0, 1, 3, 4
NONE = abi.NONE


@pytest.fixture(scope="module")
def pool() -> Iterator[LanePool]:
    with LanePool(1) as pool:
        yield pool


@pytest.fixture
def plan(pool: LanePool) -> Iterator[SoundPlan]:
    with SoundPlan(pool) as plan:
        yield plan


def last_error() -> str:
    return str(LIBRARY.emel_last_error().decode())


def assert_refused(plan: SmallPlan, status: int, text: str) -> None:
    assert plan.try_create() == status, last_error()
    assert text in last_error()
    assert not plan.handle.value  # nothing to destroy


def test_the_plan_that_is_damaged_is_sound(plan: SoundPlan, pool: LanePool) -> None:
    plan.create()
    batch = plan.run(
        pool, 4, positions=[0, 1, 2, 0], sequences=[0, 0, 0, 1], output_rows=[2, 3], block_table=[[0, 1], [2, 3]]
    )
    assert batch.bad_layer.tolist() == [-1] * 4
    assert batch.argmax.tolist() == batch.logits.argmax(axis=1).tolist()


# (record, field, index, value, status, text); texts end where the numbers of the plan begin.
RECORDS: list[tuple[str, str, int | None, int, int, str]] = [
    ("EMBED", "kind", None, 0, UNSUPPORTED, "op 0 has unknown kind 0"),
    ("EMBED", "kind", None, 99, UNSUPPORTED, "op 0 has unknown kind 99"),
    ("EMBED", "flags", None, 4, UNSUPPORTED, "flags is 4, allowed 3"),
    ("EMBED", "flags", None, 1, INVALID, "op 0 (kind 1): output rows flag is 1, allowed 0"),
    ("EMBED", "segment", None, 1, INVALID, "op 1 goes back to segment 0"),
    ("EMBED", "weight", 0, N_WEIGHTS, OUT_OF_BOUNDS, f"weight index is {N_WEIGHTS}, allowed {N_WEIGHTS}"),
    ("EMBED", "weight", 0, abi.NO_WEIGHT, OUT_OF_BOUNDS, "weight index is 4294967295"),
    ("EMBED", "weight", 0, NORM, INVALID, "packed flag of a matrix is 0, allowed 1"),
    ("EMBED", "out", 0, NONE, OUT_OF_BOUNDS, "out[0] is"),
    ("EMBED", "out", 0, 32, OUT_OF_BOUNDS, "out[0] is 32, allowed 64"),
    ("EMBED", "out", 0, 1 << 40, OUT_OF_BOUNDS, "out[0] is 1099511628288, allowed"),
    ("EMBED", "out", 0, 2**64 - 64, OUT_OF_BOUNDS, "out[0] is 18446744073709551615, allowed"),
    ("EMBED", "out", 0, abi.LOGITS, OUT_OF_BOUNDS, "out[0] is"),
    ("ROPE_TABLE", "flags", None, 1, INVALID, "output rows flag is 1, allowed 0"),
    ("ROPE_TABLE", "weight", 0, N_WEIGHTS, OUT_OF_BOUNDS, "weight index is"),
    ("ROPE_TABLE", "weight", 0, NORM, INVALID, "type of a vector is 0, allowed 28"),
    ("ROPE_TABLE", "weight", 0, OUTPUT, INVALID, "weight rows is 8, allowed 1"),
    ("ROPE_TABLE", "out", 0, NONE, OUT_OF_BOUNDS, "out[0] is"),
    ("RMS_NORM", "dim", 0, 0, INVALID, "dim[0] is 0, allowed 16777216"),
    ("RMS_NORM", "dim", 0, 1 << 25, INVALID, "dim[0] is 33554432, allowed 16777216"),
    ("RMS_NORM", "dim", 0, 31, INVALID, "weight columns is 32, allowed 31"),
    ("RMS_NORM", "in_", 0, NONE, OUT_OF_BOUNDS, "in[0] is"),
    ("RMS_NORM", "in_", 1, 8, OUT_OF_BOUNDS, "in[1] is 8, allowed 64"),
    ("RMS_NORM", "out", 0, 8, OUT_OF_BOUNDS, "out[0] is 8, allowed 64"),
    ("RMS_NORM", "out", 1, 1 << 40, OUT_OF_BOUNDS, "out[1] is"),
    ("RMS_NORM", "weight", 0, abi.NO_WEIGHT, OUT_OF_BOUNDS, "weight index is"),
    ("RMS_NORM", "weight", 0, FREQUENCIES, INVALID, "weight columns is 8, allowed 32"),
    ("RMS_NORM", "weight", 0, QUERY, INVALID, "weight rows is 32, allowed 1"),
    ("MATMUL", "dim", 0, 0, INVALID, "dim[0] is 0"),
    ("MATMUL", "dim", 0, 64, INVALID, "weight columns is 32, allowed 64"),
    ("MATMUL", "dim", 1, 0, INVALID, "dim[1] is 0, allowed 4"),
    ("MATMUL", "dim", 1, 5, INVALID, "dim[1] is 5, allowed 4"),
    ("MATMUL", "dim", 1, 4, OUT_OF_BOUNDS, "weight index is 4294967295"),
    ("MATMUL", "dim", 3, 1, INVALID, "dim[1] of a piece is 3, allowed 1"),
    ("MATMUL", "dim", 3, 2, INVALID, "dim[3] is 2, allowed 1"),
    ("MATMUL", "weight", 1, OUTPUT, INVALID, "type of a part (block and float parts mixed) is 0"),
    ("MATMUL", "weight", 1, NORM, INVALID, "packed flag of a matrix is 0, allowed 1"),
    ("MATMUL", "weight", 4, NORM - 1, INVALID, "weight columns is 8, allowed 32"),
    ("MATMUL", "weight", 5, BIAS, INVALID, "weight columns is 32, allowed 16"),
    ("MATMUL", "weight", 4, 99, OUT_OF_BOUNDS, "weight index is 99"),
    ("MATMUL", "out", 0, abi.LOGITS, INVALID, "logits part is 0"),
    ("MATMUL", "out", 2, NONE, OUT_OF_BOUNDS, "out is"),
    ("MATMUL", "in_", 0, NONE, OUT_OF_BOUNDS, "in[0] is"),
    ("LOGITS", "weight", 0, KEY, INVALID, "output width is 16, allowed 8"),
    ("LOGITS", "in_", 0, 1 << 40, OUT_OF_BOUNDS, "in[0] is"),
    ("LOGITS", "flags", None, 0, INVALID, "logits part is 0"),
    ("ROPE_STORE", "dim", 0, 0, INVALID, "n_heads is 0, allowed 4096"),
    ("ROPE_STORE", "dim", 0, 4097, INVALID, "n_heads is 4097, allowed 4096"),
    ("ROPE_STORE", "dim", 1, 0, INVALID, "n_kv_heads is 0, allowed 4096"),
    ("ROPE_STORE", "dim", 1, 2, INVALID, "n_kv_heads is 2, allowed 1"),
    ("ROPE_STORE", "dim", 1, 3, INVALID, "n_heads is 2, allowed 3"),
    ("ROPE_STORE", "dim", 2, 0, INVALID, "head_dim is 0, allowed 512"),
    ("ROPE_STORE", "dim", 2, 513, INVALID, "head_dim is 513, allowed 512"),
    ("ROPE_STORE", "dim", 2, 8, INVALID, "head_dim is 8, allowed 16"),
    ("ROPE_STORE", "dim", 3, 18, INVALID, "n_rot is 18, allowed 16"),
    ("ROPE_STORE", "dim", 3, 15, INVALID, "n_rot is 15, allowed 16"),
    ("ROPE_STORE", "dim", 4, 2, INVALID, "pairing is 2, allowed 1"),
    ("ROPE_STORE", "dim", 5, 1, OUT_OF_BOUNDS, "kv_layer is 1, allowed 1"),
    ("ROPE_STORE", "weight", 0, NORM, INVALID, "weight columns is 32, allowed 16"),
    ("ROPE_STORE", "weight", 1, FREQUENCIES, INVALID, "weight columns is 8, allowed 16"),
    ("ROPE_STORE", "weight", 1, N_WEIGHTS, OUT_OF_BOUNDS, "weight index is"),
    ("ROPE_STORE", "flags", None, 1, INVALID, "output rows flag is 1, allowed 0"),
    *[("ROPE_STORE", "in_", i, NONE, OUT_OF_BOUNDS, f"in[{i}] is") for i in range(4)],
    ("ATTENTION", "dim", 0, 0, INVALID, "n_heads is 0"),
    ("ATTENTION", "dim", 3, 7, OUT_OF_BOUNDS, "kv_layer is 7, allowed 1"),
    ("ATTENTION", "dim", 5, 2, INVALID, "dim[5] is 2, allowed 1"),
    ("ATTENTION", "weight", 0, NORM, INVALID, "weight columns is 32, allowed 2"),
    ("ATTENTION", "flags", None, 1, INVALID, "output rows flag is 1, allowed 0"),
    ("ATTENTION", "in_", 0, NONE, OUT_OF_BOUNDS, "in[0] is"),
    ("ATTENTION", "in_", 1, NONE, OUT_OF_BOUNDS, "in[1] is"),
    ("ATTENTION", "out", 0, NONE, OUT_OF_BOUNDS, "out[0] is"),
    ("QUANTIZE", "dim", 0, 0, INVALID, "dim[0] is 0"),
    ("QUANTIZE", "in_", 0, NONE, OUT_OF_BOUNDS, "in[0] is"),
    ("QUANTIZE", "out", 0, NONE, OUT_OF_BOUNDS, "out[0] is"),
    ("GATED", "dim", 0, 1 << 25, INVALID, "dim[0] is 33554432"),
    ("GATED", "dim", 1, 4, UNSUPPORTED, "activation is 4, allowed 3"),
    ("GATED", "in_", 0, NONE, OUT_OF_BOUNDS, "in[0] is"),
    ("GATED", "in_", 1, 8, OUT_OF_BOUNDS, "in[1] is 8, allowed 64"),
    ("GATED", "out", 0, 1 << 40, OUT_OF_BOUNDS, "out[0] is"),
    ("GATED", "out", 1, 1 << 40, OUT_OF_BOUNDS, "out[1] is"),
    ("ADD", "dim", 0, 0, INVALID, "dim[0] is 0"),
    *[("ADD", "in_", i, NONE, OUT_OF_BOUNDS, f"in[{i}] is") for i in range(2)],
    ("ADD", "in_", 2, 8, OUT_OF_BOUNDS, "in[2] is 8, allowed 64"),
    ("ADD", "out", 0, NONE, OUT_OF_BOUNDS, "out[0] is"),
    ("GATHER", "dim", 0, 0, INVALID, "dim[0] is 0"),
    ("GATHER", "in_", 0, NONE, OUT_OF_BOUNDS, "in[0] is"),
    ("GATHER", "out", 0, NONE, OUT_OF_BOUNDS, "out[0] is"),
    ("ARGMAX", "dim", 0, 9, INVALID, "dim[0] is 9, allowed 8"),
]


@pytest.mark.parametrize(("name", "field", "index", "value", "status", "text"), RECORDS)
def test_a_damaged_record_is_refused(
    plan: SoundPlan, name: str, field: str, index: int | None, value: int, status: int, text: str
) -> None:
    at = plan.record(name)
    if index is None:
        setattr(plan.ops[at], field, value)
    else:
        getattr(plan.ops[at], field)[index] = value
    assert_refused(plan, status, text)
    if field != "segment":
        assert f"plan: op {at} " in last_error()


def test_a_clamped_swish_needs_both_operands(plan: SoundPlan) -> None:
    gated = plan.ops[plan.record("GATED")]
    gated.dim[1], gated.in_[1] = 3, NONE
    assert_refused(plan, OUT_OF_BOUNDS, "in[1] is")


def test_optional_operands_may_be_absent(plan: SoundPlan) -> None:
    for name, field, indices in (
        ("RMS_NORM", "in_", [1]),
        ("RMS_NORM", "out", [0, 1]),
        ("GATED", "in_", [1]),
        ("GATED", "out", [0, 1]),
    ):
        for index in indices:
            getattr(plan.ops[plan.record(name)], field)[index] = NONE
    plan.create()


# Without a KV cache its fields are of no interest, so the counts alone are checked.
COUNTS = "each at least 1, outputs and sequences at most tokens"
DESCRIPTIONS: list[tuple[dict[str, int], int, str]] = [
    *[({name: 0}, INVALID, COUNTS) for name in ("max_tokens", "max_outputs", "max_sequences", "n_vocab")],
    ({"max_tokens": (1 << 20) + 1}, INVALID, "plan: 1048577 tokens"),
    ({"max_outputs": 5}, INVALID, "5 outputs"),
    ({"max_sequences": 5}, INVALID, "5 sequences"),
    ({"arena_bytes": (1 << 46) + 1}, INVALID, COUNTS),
    ({"arena_bytes": 0}, OUT_OF_BOUNDS, "allowed 0"),
    ({"n_blocks": 0}, INVALID, "KV cache of 0 blocks, 1 heads of 16 (at most 512)"),
    ({"n_kv_heads": 0}, INVALID, "KV cache of 8 blocks, 0 heads"),
    ({"head_dim": 0}, INVALID, "heads of 0"),
    ({"head_dim": 513}, INVALID, "heads of 513"),
    ({"kv_type": 3}, UNSUPPORTED, "KV cache of type 3; there are 1 (F16), 0 (F32) and 8 (Q8_0)"),
    ({"kv_type": 2}, UNSUPPORTED, "KV cache of type 2"),
    ({"max_sequence_blocks": 9}, INVALID, "sequences of up to 9 blocks in a KV cache of 8"),
    (
        {"n_kv_layers": 2**32 - 1, "n_blocks": 2**32 - 1},
        INVALID,
        "layers, 4294967295 blocks, 1 heads of 16 is too large",
    ),
    ({"n_kv_layers": 1 << 31, "n_blocks": 1 << 31, "n_kv_heads": 1 << 31}, INVALID, "is too large"),
    ({"n_vocab": 9}, INVALID, "embedding rows is 8, allowed 9"),
    ({"isa": 77}, UNSUPPORTED, "route 77 is not available on this CPU"),
    ({"activations": 2}, UNSUPPORTED, "activations 2 are unknown, allowed are 0 (int16) and 1 (int8)"),
    ({"isa": -1}, UNSUPPORTED, "route -1 is not available on this CPU"),
    ({"max_tokens": 1 << 20}, OUT_OF_BOUNDS, "allowed"),
]


@pytest.mark.parametrize(("changes", "status", "text"), DESCRIPTIONS)
def test_a_damaged_description_is_refused(plan: SoundPlan, changes: dict[str, int], status: int, text: str) -> None:
    for name, value in changes.items():
        setattr(plan.desc, name, value)
    assert_refused(plan, status, text)


def test_a_route_of_another_machine_is_refused(plan: SoundPlan) -> None:
    """No CPU runs all routes: some are of another architecture."""
    foreign = [isa for isa in abi.Isa if not LIBRARY.emel_isa_mask() >> isa & 1]
    assert foreign
    for isa in foreign:
        plan.desc.isa = isa
        assert_refused(plan, UNSUPPORTED, f"route {int(isa)} is not available on this CPU")


WEIGHTS: list[tuple[int, dict[str, Any], int, str]] = [
    (EMBEDDING, {"type": 99}, UNSUPPORTED, "tensor type 99 has no packed form"),
    (EMBEDDING, {"cols": 33}, INVALID, "33 columns are not a multiple of the block of 32"),
    (EMBEDDING, {"rows": 0}, INVALID, "shape (0, 32) is empty or too large"),
    (EMBEDDING, {"rows": 1 << 60}, INVALID, "is empty or too large"),
    (EMBEDDING, {"rows": 17}, OUT_OF_BOUNDS, "plan: weight 0 has"),
    (EMBEDDING, {"data": None}, OUT_OF_BOUNDS, "plan: weight 0 has"),
    (EMBEDDING, {"n_bytes": 1}, OUT_OF_BOUNDS, "plan: weight 0 has 1 bytes, needs"),
    (EMBEDDING, {"packed": 0}, INVALID, "weight 0 is no vector of F32 or F64"),
    (NORM, {"rows": 2}, INVALID, "weight 4 is no vector of F32 or F64"),
    (NORM, {"cols": 0}, INVALID, "weight 4 is no vector of F32 or F64"),
    (NORM, {"cols": 1 << 30}, INVALID, "weight 4 is no vector of F32 or F64"),
    (NORM, {"type": 1}, INVALID, "weight 4 is no vector of F32 or F64"),
    (NORM, {"n_bytes": 127}, OUT_OF_BOUNDS, "weight 4 has 127 bytes, needs 128 aligned to 4"),
    (NORM, {"packed": 1}, OUT_OF_BOUNDS, "needs 2048 aligned to 64"),
    (FREQUENCIES, {"n_bytes": 63}, OUT_OF_BOUNDS, "weight 3 has 63 bytes, needs 64 aligned to 8"),
]


@pytest.mark.parametrize(("index", "changes", "status", "text"), WEIGHTS)
def test_a_damaged_weight_is_refused(
    plan: SoundPlan, index: int, changes: dict[str, Any], status: int, text: str
) -> None:
    for name, value in changes.items():
        setattr(plan.weights[index], name, value)
    assert_refused(plan, status, text)


@pytest.mark.parametrize(("index", "alignment"), [(EMBEDDING, 64), (NORM, 4), (FREQUENCIES, 8)])
def test_a_misaligned_weight_is_refused(plan: SoundPlan, index: int, alignment: int) -> None:
    plan.weights[index].data += alignment // 2
    assert_refused(plan, OUT_OF_BOUNDS, f"aligned to {alignment}")


def test_an_embedding_too_wide_for_any_memory_is_refused(plan: SoundPlan) -> None:
    """Its rows times its width overflow 64 bits; the weight only claims to be there."""
    plan.desc.max_tokens, plan.desc.n_vocab = 1 << 20, 1
    weight = plan.weights[EMBEDDING]
    weight.rows, weight.cols, weight.n_bytes = 1, 1 << 42, 2**63
    del plan.ops[1:]
    assert_refused(plan, OUT_OF_BOUNDS, "op 0 (kind 1): out[0] is")


def create(desc: abi.PlanDesc | None, out: Any) -> int:
    return int(LIBRARY.emel_plan_create(desc, out))


def test_null_arguments_are_refused(plan: SoundPlan) -> None:
    handle = ctypes.c_void_p()
    assert create(None, ctypes.byref(handle)) == INVALID
    assert create(plan.desc, None) == INVALID
    assert last_error() == "plan: desc or out is NULL"
    LIBRARY.emel_plan_destroy(None)
    for n_ops, text in ((0, "plan: 0 ops and 0 weights; allowed are 1 to 1048576"), (1, "plan: 1 ops")):
        plan.desc.n_ops, plan.desc.ops = n_ops, None
        assert create(plan.desc, ctypes.byref(handle)) == INVALID
        assert text in last_error()
    plan.desc.n_ops, plan.desc.ops = len(plan.ops), (abi.Op * len(plan.ops))(*plan.ops)
    plan.desc.n_weights, plan.desc.weights = 3, None
    assert create(plan.desc, ctypes.byref(handle)) == INVALID
    plan.desc.n_ops = (1 << 20) + 1
    assert create(plan.desc, ctypes.byref(handle)) == INVALID
    assert "1048577 ops" in last_error()


def test_rebase_takes_only_what_fits(plan: SoundPlan) -> None:
    plan.create()
    weight = plan.weights[EMBEDDING]
    rebase = LIBRARY.emel_plan_rebase
    assert rebase(plan.handle, EMBEDDING, weight.data, weight.n_bytes) == OK
    assert rebase(None, EMBEDDING, weight.data, weight.n_bytes) == OUT_OF_BOUNDS
    assert rebase(plan.handle, N_WEIGHTS, weight.data, weight.n_bytes) == OUT_OF_BOUNDS
    assert last_error() == f"rebase: no weight {N_WEIGHTS}"
    for data, n_bytes in (
        (None, weight.n_bytes),
        (weight.data, weight.n_bytes - 1),
        (weight.data + 32, weight.n_bytes),
    ):
        assert rebase(plan.handle, EMBEDDING, data, n_bytes) == OUT_OF_BOUNDS
        assert f"rebase: weight 0 needs {weight.n_bytes} bytes aligned to 64" in last_error()


def test_rebase_takes_a_vector_at_any_multiple_of_its_numbers(plan: SoundPlan) -> None:
    plan.create()
    vector = plan.weights[NORM]
    room = aligned_bytes(vector.n_bytes + 4)
    assert LIBRARY.emel_plan_rebase(plan.handle, NORM, room.ctypes.data + 4, vector.n_bytes) == OK
    assert LIBRARY.emel_plan_rebase(plan.handle, NORM, room.ctypes.data + 2, vector.n_bytes) == OUT_OF_BOUNDS
    assert f"rebase: weight {NORM} needs {vector.n_bytes} bytes aligned to 4" in last_error()


# ---- anything at all


def ops_of(raw: bytes) -> list[abi.Op]:
    size = ctypes.sizeof(abi.Op)
    return [abi.Op.from_buffer_copy(raw[at : at + size].ljust(size, b"\0")) for at in range(0, len(raw), size)]


@given(raw=st.binary(min_size=1, max_size=3 * ctypes.sizeof(abi.Op)), kind=st.integers(0, 12))
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_bytes_as_records_are_refused_or_taken(pool: LanePool, raw: bytes, kind: int) -> None:
    """Never a crash; what is refused has a text that names the record."""
    with SoundPlan(pool) as plan:
        plan.ops = ops_of(raw)
        plan.ops[0].kind = kind
        if plan.try_create() != OK:
            assert last_error().startswith("plan: op ")


@given(changes=st.dictionaries(st.sampled_from([name for name, _ in abi.PlanDesc._fields_[4:-1]]), st.integers(0)))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_description_is_refused_or_taken(pool: LanePool, changes: dict[str, int]) -> None:
    with SoundPlan(pool) as plan:
        for name, value in changes.items():
            bits = 8 * getattr(abi.PlanDesc, name).size
            setattr(plan.desc, name, value % 2**bits - (2**32 if name == "isa" and value % 2**bits >= 2**31 else 0))
        if plan.try_create() != OK:
            assert last_error().startswith("plan: ")
