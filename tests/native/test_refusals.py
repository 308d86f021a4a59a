"""What batches, packing, pools, sampling and RoPE refuse, and how they say it. Nothing crashes on NULL."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from emel._native import LIBRARY, abi
from emel.kernel.pool import LanePool
from native.small_plan import aligned_bytes
from native.sound_plan import N_VOCAB, SoundPlan

if TYPE_CHECKING:
    from collections.abc import Iterator

OK, INVALID, UNSUPPORTED, OUT_OF_BOUNDS = 0, 1, 3, 4
Q8_0, F32, NO_TYPE = 8, 0, 99


@pytest.fixture(scope="module")
def pool() -> Iterator[LanePool]:
    with LanePool(2) as pool:
        yield pool


@pytest.fixture(scope="module")
def plan(pool: LanePool) -> Iterator[SoundPlan]:
    with SoundPlan(pool) as plan:
        plan.create()
        yield plan


def assert_failed(status: int, expected: int, text: str) -> None:
    assert status == expected, LIBRARY.emel_last_error()
    assert text in LIBRARY.emel_last_error().decode()


# ---- batches

SOUND: dict[str, Any] = {
    "tokens": [1, 2, 3, 7],
    "positions": [4, 5, 6, 0],
    "sequences": [0, 0, 0, 1],
    "output_rows": [2, 3],
    "block_table": [[0, 1], [2, 3]],
}

ARRAYS: list[tuple[dict[str, Any], int, str]] = [
    ({"tokens": [1, N_VOCAB, 3, 7]}, INVALID, "batch: token 1 has id 8, the vocabulary has 8"),
    ({"tokens": [-1, 2, 3, 7]}, INVALID, "batch: token 0 has id -1"),
    ({"positions": [-1, 0, 1, 0]}, INVALID, "batch: token 0 has position -1 in sequence 0 of 2"),
    ({"positions": [4, 6, 7, 0]}, INVALID, "batch: token 1 has position 6 after 4"),
    ({"positions": [4, 4, 5, 0]}, INVALID, "batch: token 1 has position 4 after 4"),
    ({"positions": [4, 3, 2, 0]}, INVALID, "batch: token 1 has position 3 after 4"),
    ({"sequences": [0, 0, 0, 2]}, INVALID, "batch: token 3 has position 0 in sequence 2 of 2"),
    ({"sequences": [-1, 0, 0, 1]}, INVALID, "in sequence -1 of 2"),
    ({"sequences": [1, 1, 1, 0]}, INVALID, "batch: sequence 0 after 1; sequences ascend"),
    ({"sequences": [0, 0, 1, 0]}, INVALID, "batch: sequence 0 after 1; sequences ascend"),
    ({"output_rows": [3, 2]}, INVALID, "batch: output row 1 is token 2 of 4; rows ascend"),
    ({"output_rows": [2, 2]}, INVALID, "batch: output row 1 is token 2 of 4; rows ascend"),
    ({"output_rows": [2, 4]}, INVALID, "batch: output row 1 is token 4 of 4"),
    ({"output_rows": [-1, 2]}, INVALID, "batch: output row 0 is token -1 of 4"),
    ({"output_rows": [1, 2, 3]}, INVALID, "batch: 4 tokens, 3 outputs, 2 sequences; the plan holds 4, 2, 2"),
    ({"block_table": [[0], [1], [2]]}, INVALID, "3 sequences; the plan holds 4, 2, 2"),
    ({"block_table": [[0, 1], [8, 3]]}, OUT_OF_BOUNDS, "batch: sequence 1 position 0 needs block 0, which is not in"),
    ({"block_table": [[-1, 1], [2, 3]]}, OUT_OF_BOUNDS, "batch: sequence 0 position 6 needs block 0, which is not in"),
    (
        {"positions": [14, 15, 16, 0], "block_table": [[0, -1], [2, 3]]},
        OUT_OF_BOUNDS,
        "batch: sequence 0 position 16 needs block 1, which is not in its table",
    ),
    (
        {"positions": [31, 32, 33, 0], "block_table": [[0, 1], [2, 3]]},
        OUT_OF_BOUNDS,
        "batch: sequence 0 position 33 needs block 2, which is not in its table",
    ),
    ({"positions": [2**31 - 3, 2**31 - 2, 2**31 - 1, 0]}, OUT_OF_BOUNDS, "needs block 2, which is not in its table"),
]


@pytest.mark.parametrize(("changes", "status", "text"), ARRAYS)
def test_a_damaged_batch_is_refused_and_nothing_is_run(
    plan: SoundPlan, pool: LanePool, changes: dict[str, Any], status: int, text: str
) -> None:
    batch = plan.batch(4, **{**SOUND, **changes})
    before = plan.arena.tobytes(), plan.kv.tobytes()
    counters = abi.Counters()
    assert_failed(LIBRARY.emel_plan_run(plan.handle, pool.handle, batch.record, counters), status, text)
    assert (plan.arena.tobytes(), plan.kv.tobytes()) == before
    assert set(batch.bad_layer.tolist()) == {-7}
    assert set(batch.argmax.tolist()) == {-7}
    assert bytes(counters) == bytes(ctypes.sizeof(counters))


MEMORY = "aligned to 64"
FIELDS: list[tuple[str, Any, int, str]] = [
    ("n_tokens", 0, INVALID, "batch: 0 tokens"),
    ("n_tokens", 5, INVALID, "batch: 5 tokens"),
    ("n_sequences", 0, INVALID, "0 sequences"),
    ("arena", None, OUT_OF_BOUNDS, MEMORY),
    ("arena_bytes", 64, OUT_OF_BOUNDS, "batch: arena of 64"),
    ("kv", None, OUT_OF_BOUNDS, MEMORY),
    ("kv_bytes", 64, OUT_OF_BOUNDS, "KV cache of 64 bytes"),
    *[
        (name, None, INVALID, "batch: a required array is NULL")
        for name in (
            "tokens", "positions", "sequences", "block_table", "bad_layer", "output_rows", "logits", "argmax"
        )
    ],
]  # fmt: skip


@pytest.mark.parametrize(("field", "value", "status", "text"), FIELDS)
def test_a_damaged_batch_struct_is_refused(
    plan: SoundPlan, pool: LanePool, field: str, value: Any, status: int, text: str
) -> None:
    batch = plan.batch(4, **SOUND)
    setattr(batch.record, field, value)
    assert_failed(LIBRARY.emel_plan_run(plan.handle, pool.handle, batch.record, None), status, text)


@pytest.mark.parametrize("field", ["arena", "kv"])
def test_misaligned_memory_is_refused(plan: SoundPlan, pool: LanePool, field: str) -> None:
    batch = plan.batch(4, **SOUND)
    setattr(batch.record, field, getattr(batch.record, field) + 32)
    status = LIBRARY.emel_plan_run(plan.handle, pool.handle, batch.record, None)
    assert_failed(status, OUT_OF_BOUNDS, MEMORY)


def test_run_refuses_null(plan: SoundPlan, pool: LanePool) -> None:
    record = plan.batch(4, **SOUND).record
    for arguments in ((None, pool.handle, record), (plan.handle, None, record), (plan.handle, pool.handle, None)):
        assert_failed(LIBRARY.emel_plan_run(*arguments, None), INVALID, "run: plan, pool or batch is NULL")


def test_a_batch_without_outputs_needs_no_room_for_them(plan: SoundPlan, pool: LanePool) -> None:
    batch = plan.batch(4, **{**SOUND, "output_rows": []})
    batch.record.logits = batch.record.argmax = batch.record.output_rows = None
    counters = abi.Counters()
    assert LIBRARY.emel_plan_run(plan.handle, pool.handle, batch.record, counters) == OK
    assert (counters.dispatches[abi.OpKind.MATMUL], counters.optimized, counters.fallback) == (2, len(plan.ops), 0)


def test_segments_outside_the_plan_run_nothing(plan: SoundPlan, pool: LanePool) -> None:
    for begin, end in ((2, 9), (1, 1), (2, 0)):
        batch = plan.batch(4, **SOUND)
        batch.record.segment_begin, batch.record.segment_end = begin, end
        counters = abi.Counters()
        assert LIBRARY.emel_plan_run(plan.handle, pool.handle, batch.record, counters) == OK
        assert counters.optimized == 0
        assert set(batch.argmax.tolist()) == {-7}


# ---- packing


@pytest.mark.parametrize(
    ("type_", "rows", "cols", "status", "text"),
    [
        (NO_TYPE, 1, 32, UNSUPPORTED, "pack: tensor type 99 has no packed form"),
        (28, 1, 32, UNSUPPORTED, "pack: tensor type 28 has no packed form"),
        (Q8_0, 0, 32, INVALID, "pack: shape (0, 32) is empty or too large"),
        (Q8_0, 1, 0, INVALID, "pack: shape (1, 0) is empty or too large"),
        (Q8_0, 2**40, 2**40, INVALID, "pack: shape (1099511627776, 1099511627776) is empty or too large"),
        (F32, 2**63, 2, INVALID, "is empty or too large"),
        (Q8_0, 4, 48, INVALID, "pack: 48 columns are not a multiple of the block of 32"),
    ],
)
def test_pack_size_refuses(type_: int, rows: int, cols: int, status: int, text: str) -> None:
    n_bytes = ctypes.c_uint64(7)
    assert_failed(LIBRARY.emel_pack_size(type_, rows, cols, n_bytes), status, text)
    assert n_bytes.value == 7


def test_pack_size_refuses_null() -> None:
    assert_failed(LIBRARY.emel_pack_size(F32, 1, 1, None), INVALID, "pack: n_bytes is NULL")


@pytest.mark.parametrize(
    ("changes", "status", "text"),
    [
        ({"src": None}, OUT_OF_BOUNDS, "pack: job 1 has 68 source bytes, its shape needs 68"),
        ({"src_bytes": 67}, OUT_OF_BOUNDS, "pack: job 1 has 67 source bytes, its shape needs 68"),
        ({"src_bytes": 69}, OUT_OF_BOUNDS, "pack: job 1 has 69 source bytes, its shape needs 68"),
        ({"dst": None}, OUT_OF_BOUNDS, "pack: job 1 needs"),
        ({"dst_bytes": 64}, OUT_OF_BOUNDS, "bytes aligned to 64 at its destination"),
        ({"type": NO_TYPE}, UNSUPPORTED, "pack: tensor type 99"),
        ({"rows": 0}, INVALID, "pack: shape (0, 32)"),
    ],
)
def test_pack_refuses_a_job_before_it_writes_any(
    pool: LanePool, changes: dict[str, Any], status: int, text: str
) -> None:
    source, packed = np.full(68, 1, np.uint8), [aligned_bytes(4096, fill=0xEE) for _ in range(2)]
    jobs = (abi.PackJob * 2)(
        *[abi.PackJob(source.ctypes.data, 68, each.ctypes.data, each.nbytes, 2, 32, Q8_0) for each in packed]
    )
    for name, value in changes.items():
        setattr(jobs[1], name, value)
    assert_failed(LIBRARY.emel_pack(pool.handle, jobs, 2), status, text)
    assert all((each == 0xEE).all() for each in packed)


def test_pack_refuses_a_misaligned_destination_and_null(pool: LanePool) -> None:
    source, packed = np.zeros(34, np.uint8), aligned_bytes(4096)
    job = abi.PackJob(source.ctypes.data, 34, packed.ctypes.data + 32, 4000, 1, 32, Q8_0)
    assert_failed(LIBRARY.emel_pack(pool.handle, job, 1), OUT_OF_BOUNDS, "aligned to 64 at its destination")
    assert_failed(LIBRARY.emel_pack(None, job, 1), INVALID, "pack: pool or jobs is NULL")
    assert_failed(LIBRARY.emel_pack(pool.handle, None, 1), INVALID, "pack: pool or jobs is NULL")
    assert LIBRARY.emel_pack(pool.handle, None, 0) == OK


def test_dequantize_refuses_what_is_not_there() -> None:
    source, values = np.zeros(34, np.uint8), np.zeros(32, np.float32)
    at, to = source.ctypes.data, values.ctypes.data
    for arguments in ((Q8_0, None, 34, to, 32), (Q8_0, at, 34, None, 32), (Q8_0, at, 33, to, 32), (F32, at, 34, to, 8)):
        n = arguments[-1]
        assert_failed(LIBRARY.emel_dequantize(*arguments), OUT_OF_BOUNDS, f"source bytes for {n} values")
    assert_failed(LIBRARY.emel_dequantize(NO_TYPE, at, 34, to, 32), UNSUPPORTED, "tensor type 99")
    assert_failed(LIBRARY.emel_dequantize(Q8_0, at, 34, to, 31), INVALID, "31 columns are not a multiple")
    assert LIBRARY.emel_dequantize(Q8_0, None, 0, None, 0) == OK


# ---- pools, sampling, RoPE, sizes


@pytest.mark.parametrize("n_lanes", [0, 257, 2**32 - 1])
def test_pool_refuses_numbers_of_lanes(n_lanes: int) -> None:
    handle = ctypes.c_void_p(1)
    status = LIBRARY.emel_pool_create(n_lanes, ctypes.byref(handle))
    assert_failed(status, INVALID, f"pool: {n_lanes} lanes; allowed are 1 to 256")
    assert handle.value is None


def test_pool_takes_null() -> None:
    assert_failed(LIBRARY.emel_pool_create(1, None), INVALID, "pool: out is NULL")
    assert LIBRARY.emel_pool_n_lanes(None) == 0
    LIBRARY.emel_pool_destroy(None)


SAMPLING: list[tuple[dict[str, float], str]] = [
    ({"temperature": 0.0}, "sample: temperature 0 (0 to 1e6, not 0)"),
    ({"temperature": -1.0}, "sample: temperature -1"),
    ({"temperature": 2e6}, "sample: temperature 2e+06"),
    ({"temperature": np.nan}, "sample: temperature nan"),
    ({"temperature": np.inf}, "sample: temperature inf"),
    ({"top_p": -0.5}, "top_p -0.5 (0 to 1)"),
    ({"top_p": 1.5}, "top_p 1.5 (0 to 1)"),
    ({"top_p": np.nan}, "top_p nan"),
    ({"min_p": -0.5}, "min_p -0.5 (0 to 1)"),
    ({"min_p": 1.5}, "min_p 1.5 (0 to 1)"),
    ({"min_p": np.nan}, "min_p nan"),
]


def sample(logits: Any, n_vocab: int, parameters: abi.Sampling | None, scratch: Any, n_bytes: int, token: Any) -> int:
    return int(LIBRARY.emel_sample(logits, n_vocab, parameters, scratch, n_bytes, token))


@pytest.mark.parametrize(("changes", "text"), SAMPLING)
def test_sample_refuses_parameters(changes: dict[str, float], text: str) -> None:
    logits, scratch, token = np.zeros(4, np.float32), aligned_bytes(64), ctypes.c_int32(-7)
    parameters = abi.Sampling(**{"temperature": 1.0, "top_p": 1.0, "min_p": 0.0, **changes})
    status = sample(logits.ctypes.data, 4, parameters, scratch.ctypes.data, 64, ctypes.byref(token))
    assert_failed(status, INVALID, text)
    assert token.value == -7


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_sample_refuses_logits_that_are_not_finite(bad: float) -> None:
    scratch, token = aligned_bytes(64), ctypes.c_int32()
    for at in range(5):
        logits = np.zeros(5, np.float32)
        logits[at] = bad
        parameters = abi.Sampling(temperature=1.0, top_p=1.0)
        status = sample(logits.ctypes.data, 5, parameters, scratch.ctypes.data, 64, ctypes.byref(token))
        assert_failed(status, INVALID, "sample: logits are not finite")


def test_sample_refuses_null_and_too_little_scratch() -> None:
    logits, scratch, token = np.zeros(4, np.float32), aligned_bytes(64), ctypes.c_int32()
    parameters = abi.Sampling(temperature=1.0, top_p=1.0)
    needed = LIBRARY.emel_sample_scratch(4)
    good = (logits.ctypes.data, 4, parameters, scratch.ctypes.data, needed, ctypes.byref(token))
    assert sample(*good) == OK
    for index, value in ((0, None), (1, 0), (1, 2**31), (2, None), (3, None), (4, needed - 1), (5, None)):
        arguments = [*good]
        arguments[index] = value
        status = sample(*arguments)
        assert_failed(status, INVALID, "sample: a required pointer is NULL or the scratch is too small")


@pytest.mark.parametrize(
    ("base", "n_rot"),
    [(0.5, 64), (0.0, 64), (-1e4, 64), (np.nan, 64), (np.inf, 64), (1e301, 64), (1e4, 0), (1e4, 63)],
)
def test_rope_frequencies_refuse(base: float, n_rot: int) -> None:
    frequencies = np.full(64, 7.0)
    status = LIBRARY.emel_rope_frequencies(base, n_rot, frequencies.ctypes.data)
    assert_failed(status, INVALID, f"(at least 1) and n_rot {n_rot} (even, at least 2)")
    assert (frequencies == 7).all()
    assert_failed(LIBRARY.emel_rope_frequencies(1e4, 64, None), INVALID, "rope: base 10000")


def test_sizes_beyond_any_memory_are_zero() -> None:
    huge = 2**63
    assert LIBRARY.emel_quantized_bytes(huge) == 0
    for arguments in ((huge, 1, 1, 64), (1, huge, 1, 64), (1, 1, huge, 64), (1, 1, 1, huge), (2**20,) * 4):
        assert LIBRARY.emel_kv_bytes(*arguments) == 0, arguments
    for shape in ((1, huge, 1, 64, 1), (1, 1, 1, huge, 1), (2**32 - 1, 2**32, 1, 2**20, huge)):
        assert LIBRARY.emel_attention_scratch(*shape) == 0, shape
    assert LIBRARY.emel_quantized_bytes(33) > 0
    assert LIBRARY.emel_attention_scratch(2**40, 1, 1, 64, 17) == LIBRARY.emel_attention_scratch(16, 1, 1, 64, 17)


@pytest.mark.parametrize("isa", [-1, len(abi.Isa), 2**31 - 1, -(2**31)])
def test_an_unknown_route_has_no_name(isa: int) -> None:
    assert LIBRARY.emel_isa_name(isa) is None


def test_the_last_error_is_the_calling_threads_own() -> None:
    import threading

    LIBRARY.emel_pool_create(0, None)
    seen: list[bytes] = []
    thread = threading.Thread(target=lambda: seen.append(LIBRARY.emel_last_error()))
    thread.start()
    thread.join()
    assert seen == [b""]
    assert LIBRARY.emel_last_error() == b"pool: out is NULL"
