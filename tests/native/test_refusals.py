"""What batches, packing, pools, sampling and RoPE refuse, and how they say it. Nothing crashes on NULL."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from emel._native import LIBRARY, abi
from emel.kernel.pool import LanePool
from emel.tensor.types import TensorType
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


FIELDS: list[tuple[str, Any, int, str]] = [
    ("n_tokens", 0, INVALID, "batch: 0 tokens"),
    ("n_tokens", 5, INVALID, "batch: 5 tokens"),
    ("n_sequences", 0, INVALID, "0 sequences"),
    ("arena", None, OUT_OF_BOUNDS, "batch: arena of 0 bytes"),
    ("arena_bytes", 64, OUT_OF_BOUNDS, "batch: arena of 64"),
    ("kv", None, OUT_OF_BOUNDS, "batch: KV cache of 0 bytes"),
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


@pytest.mark.parametrize(("field", "what"), [("arena", "arena"), ("kv", "KV cache")])
def test_misaligned_memory_is_refused(plan: SoundPlan, pool: LanePool, field: str, what: str) -> None:
    batch = plan.batch(4, **SOUND)
    setattr(batch.record, field, getattr(batch.record, field) + 32)
    status = LIBRARY.emel_plan_run(plan.handle, pool.handle, batch.record, None)
    assert_failed(status, OUT_OF_BOUNDS, f"batch: the {what} begins at no multiple of 64 bytes")


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


def a_chain(**changes: Any) -> abi.Sampling:
    return abi.Sampling(**{"temperature": 1.0, "top_p": 1.0, "typical_p": 1.0, "repeat_penalty": 1.0, **changes})


RANGES = {
    "temperature": (0, 1e6), "dynatemp_range": (0, 1e6), "dynatemp_exponent": (0, 1e6), "top_n_sigma": (-1, 1e6),
    "typical_p": (0, 1), "top_p": (0, 1), "min_p": (0, 1), "xtc_probability": (0, 1), "xtc_threshold": (0, 1),
    "repeat_penalty": (1e-6, 1e6), "presence_penalty": (-1e6, 1e6), "frequency_penalty": (-1e6, 1e6),
    "dry_multiplier": (0, 1e6), "dry_base": (0, 1e6), "mirostat_mu": (-1e6, 1e6),
}  # fmt: skip


def choose(logits: Any, n_vocab: int, parameters: abi.Sampling | None, scratch: Any, n_bytes: int, choice: Any) -> int:
    return int(LIBRARY.emel_choose(logits, n_vocab, parameters, scratch, n_bytes, choice))


def refuse_choice(parameters: abi.Sampling, text: str, logits: Any = (0, 0, 0, 0)) -> None:
    values, scratch, choice = np.array(logits, np.float32), aligned_bytes(4096), abi.Choice(token=-7)
    status = choose(values.ctypes.data, len(values), parameters, scratch.ctypes.data, 4096, ctypes.byref(choice))
    assert_failed(status, INVALID, text)
    assert choice.token == -7


@pytest.mark.parametrize("name", RANGES)
def test_choose_refuses_numbers_out_of_range(name: str) -> None:
    low, high = RANGES[name]
    for value in (low - 1, high + high / 1000, np.nan, np.inf, -np.inf):
        refuse_choice(
            a_chain(**{name: value}), f"choose: {name} is {np.float32(value):g}: allowed are {low:g} to {high:g}"
        )


def test_choose_refuses_steps_it_does_not_know() -> None:
    refuse_choice(a_chain(mirostat=3), "choose: mirostat is 3: allowed are 0 to 2")
    refuse_choice(a_chain(n_steps=17), "choose: n_steps is 17: allowed are 0 to 16")
    for step in (0, 10, 2**32 - 1):
        parameters = a_chain(n_steps=2)
        parameters.steps[:2] = [1, step]
        refuse_choice(parameters, f"choose: step 1 is {step} (1 to 9)")


def test_choose_refuses_lists_that_are_not_there() -> None:
    for name in ("n_history", "n_biases", "n_breakers", "n_breaker_tails"):
        parameters = a_chain(**{name: 1})
        status = choose(1, 4, parameters, 1, 2**40, ctypes.byref(abi.Choice()))
        assert_failed(status, INVALID, "choose: a list is NULL")


@pytest.mark.parametrize("token", [-1, 4, 2**31 - 1])
def test_choose_refuses_tokens_outside_the_vocabulary(token: int) -> None:
    history = np.array([0, token], np.int32)
    refuse_choice(a_chain(history=history.ctypes.data, n_history=2), f"choose: token {token} of the history is outside")
    biases = (abi.LogitBias * 1)(abi.LogitBias(token, 1.0))
    refuse_choice(a_chain(biases=ctypes.addressof(biases), n_biases=1), f"choose: bias 1 of token {token}")


@pytest.mark.parametrize("bias", [np.nan, np.inf])
def test_choose_refuses_biases_that_are_no_numbers(bias: float) -> None:
    biases = (abi.LogitBias * 1)(abi.LogitBias(0, bias))
    refuse_choice(a_chain(biases=ctypes.addressof(biases), n_biases=1), f"choose: bias {bias:g} of token 0")


@pytest.mark.parametrize("entries", [[(1, 0, 0), (0, 0, 0)], [(0, 1, 2)], [(0, 3, 0)], [(0, 2**32 - 1, 1)]])
def test_choose_refuses_breakers_out_of_order_or_bounds(entries: list[tuple[int, int, int]]) -> None:
    breakers, tails = (abi.Breaker * len(entries))(*(abi.Breaker(*entry) for entry in entries)), np.zeros(2, np.int32)
    parameters = a_chain(
        breakers=ctypes.addressof(breakers),
        n_breakers=len(entries),
        breaker_tails=tails.ctypes.data,
        n_breaker_tails=2,
    )
    refuse_choice(parameters, f"choose: breaker {len(entries) - 1} is out of order or of bounds")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_choose_refuses_logits_that_are_not_finite(bad: float) -> None:
    for at in range(5):
        refuse_choice(a_chain(), "choose: logits are not finite", [bad if i == at else 0 for i in range(5)])


def test_choose_refuses_when_every_token_is_ruled_out() -> None:
    allowed = np.array([0b10000], np.uint32)
    refuse_choice(a_chain(allowed=allowed.ctypes.data), "choose: every token is ruled out")
    biases = (abi.LogitBias * 4)(*(abi.LogitBias(token, -np.inf) for token in range(4)))
    refuse_choice(a_chain(biases=ctypes.addressof(biases), n_biases=4), "choose: every token is ruled out")


def test_choose_refuses_null_and_too_little_scratch() -> None:
    logits, scratch, choice = np.zeros(4, np.float32), aligned_bytes(4096), abi.Choice()
    needed = LIBRARY.emel_choose_scratch(4, 0)
    good = (logits.ctypes.data, 4, a_chain(), scratch.ctypes.data, needed, ctypes.byref(choice))
    assert choose(*good) == OK
    for index, value in ((0, None), (1, 0), (1, 2**31), (2, None), (3, None), (4, needed - 1), (5, None)):
        arguments = [*good]
        arguments[index] = value
        assert_failed(choose(*arguments), INVALID, "choose: a required pointer is NULL or the scratch is too small")


def test_logprobs_refuse_what_is_no_token_and_too_many() -> None:
    logits, scratch = np.zeros(40, np.float32), aligned_bytes(4096)
    ids, logprobs = np.zeros(21, np.int32), np.zeros(21)
    needed = LIBRARY.emel_choose_scratch(40, 0)
    good = (logits.ctypes.data, 40, 3, 20, scratch.ctypes.data, needed, ids.ctypes.data, logprobs.ctypes.data)
    assert LIBRARY.emel_logprobs(*good) == OK
    null = "logprobs: a required pointer is NULL or the scratch is too small"
    changes: list[tuple[int, Any, str]] = [
        (0, None, null), (1, 0, null), (1, 2**31, null), (4, None, null), (5, needed - 1, null), (6, None, null),
        (7, None, null), (2, -1, "logprobs: token -1 of 40"), (2, 40, "logprobs: token 40 of 40"),
        (3, 21, "the top 21 of at most 20"),
    ]  # fmt: skip
    for index, value, text in changes:
        arguments = [*good]
        arguments[index] = value
        assert_failed(LIBRARY.emel_logprobs(*arguments), INVALID, text)
    logits[7] = np.nan
    assert_failed(LIBRARY.emel_logprobs(*good), INVALID, "logprobs: logits are not finite")


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
    assert LIBRARY.emel_quantized_bytes(huge, 0) == 0
    for arguments in ((huge, 1, 1, 64), (1, huge, 1, 64), (1, 1, huge, 64), (1, 1, 1, huge), (2**20,) * 4):
        assert not any(LIBRARY.emel_kv_bytes(*arguments, kind) for kind in (0, 1, 8)), arguments
    kinds = [kind for kind in range(50) if LIBRARY.emel_kv_bytes(1, 1, 1, 64, kind)]
    assert kinds == [TensorType.F32, TensorType.F16, TensorType.Q8_0]
    for shape in ((1, huge, 1, 64, 1), (1, 1, 1, huge, 1), (2**32 - 1, 2**32, 1, 2**20, huge)):
        assert LIBRARY.emel_attention_scratch(*shape) == 0, shape
    assert LIBRARY.emel_quantized_bytes(33, 0) > 0
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
