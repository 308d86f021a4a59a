"""Lanes: they finish, take turns, sleep when idle, and compute in a floating-point mode of their own."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emel._native import LIBRARY, check
from emel._native.abi import OpKind
from emel.kernel.pool import LanePool
from emel.kernel.sampling import NativeSampler, Step
from emel.tensor.types import TensorType
from native.float_environment import LAYOUT, control_word, hostile_environment
from native.small_plan import SmallPlan, aligned_bytes
from native.test_attention import AttentionPlan, Heads, random_sequence
from native.test_matmul import random_product

if TYPE_CHECKING:
    from collections.abc import Callable

N_RUNS = 20_000
PATIENCE = 600.0  # seconds for them; they take two on an idle machine, and minutes beside what takes both of its CPUs

needs_mode = pytest.mark.skipif(LAYOUT is None, reason="the floating-point control word of this CPU is not known here")


def gated_plan(max_tokens: int, n: int) -> tuple[SmallPlan, int, int]:
    """A plan of two GATEDs in a row, with its operand's and its result's place."""
    plan = SmallPlan(max_tokens=max_tokens)
    x, middle, out = (plan.place(max_tokens * n * 4) for _ in range(3))
    plan.add(OpKind.GATED, in_=[x, x], out=[middle], dim=[n])
    plan.add(OpKind.GATED, in_=[middle, x], out=[out], dim=[n])
    plan.create()
    return plan, x, out


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_twenty_thousand_tiny_runs_of_eight_lanes_finish() -> None:
    """More lanes than CPUs: a lost wake-up or a run that touches the one before would stall here."""
    plan, x, out = gated_plan(2, 256)
    values = np.random.default_rng(0).standard_normal((2, 256)).astype(np.float32)
    with plan, LanePool(8) as pool:
        plan.write(x, values)
        batch = plan.run(pool, 2)
        expected = plan.read(out, (2, 256)).copy()
        begin = time.monotonic()
        for index in range(N_RUNS):
            assert LIBRARY.emel_plan_run(plan.handle, pool.handle, batch.record, None) == 0
            if index % 1000 == 0:  # long enough for every worker to fall asleep
                assert np.array_equal(plan.read(out, (2, 256)), expected)
                plan.write(out, np.zeros((2, 256)))
                time.sleep(0.002)
                assert time.monotonic() - begin < PATIENCE
        assert np.array_equal(plan.read(out, (2, 256)), expected)


def test_pools_come_and_go() -> None:
    plan, x, _ = gated_plan(1, 64)
    with plan:
        plan.write(x, np.ones(64))
        for n_lanes in (1, 2, 8, 64, 3, 256, 1):
            with LanePool(n_lanes) as pool:
                plan.run(pool)
            LanePool(n_lanes).close()  # never run


def run_in_threads(n_threads: int, work: Callable[[int], None]) -> None:
    """work(thread_index) in threads that start at once; the first failure is raised."""
    start = threading.Barrier(n_threads)

    def begin(index: int) -> None:
        start.wait()
        work(index)

    with ThreadPoolExecutor(n_threads) as executor:
        list(executor.map(begin, range(n_threads)))


def test_threads_that_share_a_pool_take_turns() -> None:
    with LanePool(3) as pool:
        plans = [gated_plan(4, 320) for _ in range(4)]
        inputs = np.random.default_rng(1).standard_normal((4, 4, 320)).astype(np.float32)
        expected = []
        for (plan, x, out), values in zip(plans, inputs, strict=True):
            plan.write(x, values)
            plan.run(pool, 4)
            expected.append(plan.read(out, (4, 320)))

        def work(index: int) -> None:
            plan, _, out = plans[index]
            for _ in range(300):
                plan.write(out, np.zeros((4, 320)))
                plan.run(pool, 4)
                assert np.array_equal(plan.read(out, (4, 320)), expected[index])

        run_in_threads(4, work)
        for plan, _, _ in plans:
            plan.close()


def test_threads_that_share_a_plan_take_turns() -> None:
    """Each with an arena and a cache of its own, and batches of different shapes."""
    heads, lengths = Heads(6, 2, 40), [40, 3, 17, 1]
    sequences = [random_sequence(heads, n, seed) for seed, n in enumerate(lengths)]
    with AttentionPlan(heads, 40) as plan, LanePool(3) as pool:
        expected = [plan.attend(pool, *sequence[:]) for sequence in sequences]

        def work(index: int) -> None:
            arena, kv = aligned_bytes(plan.arena.nbytes), aligned_bytes(plan.kv.nbytes)
            sequence, n = sequences[index], lengths[index]
            batch = plan.batch(n)
            batch.record.arena, batch.record.kv = arena.ctypes.data, kv.ctypes.data
            out = arena[plan.out : plan.out + n * plan.q_width * 4].view(np.float32)
            for _ in range(300):
                for place, values in ((plan.q, sequence.q), (plan.k, sequence.k), (plan.v, sequence.v)):
                    arena[place : place + values.nbytes] = values.view(np.uint8).ravel()
                out[:] = 0
                check(LIBRARY.emel_plan_run(plan.handle, pool.handle, batch.record, None))
                assert np.array_equal(out, expected[index].ravel())

        run_in_threads(4, work)


def test_idle_lanes_cost_nothing() -> None:
    plan, x, _ = gated_plan(1, 64)
    with plan, LanePool(8) as pool:
        plan.write(x, np.ones(64))
        plan.run(pool)
        time.sleep(0.05)  # they spin for 1 ms each, on perhaps one CPU
        before = time.process_time()
        time.sleep(0.5)
        assert time.process_time() - before < 0.05
        plan.run(pool)  # and they wake again


def test_lanes_do_not_outlive_their_pool() -> None:
    def n_threads() -> int:
        return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - a count of names

    before = n_threads()
    with LanePool(9):
        assert n_threads() == before + 8
    assert n_threads() == before


# ---- the floating-point mode


@needs_mode
@pytest.mark.parametrize("n_lanes", [1, 3])
def test_runs_give_the_same_bits_in_any_mode_and_restore_it(n_lanes: int, routes: dict[str, int]) -> None:
    heads = Heads(3, 1, 64, n_rot=64)
    sequence = random_sequence(heads, 20)
    tiny = (sequence.q * np.float32(1e-39)).astype(np.float32)  # subnormal
    with LanePool(n_lanes) as pool:
        for isa in routes.values():
            with AttentionPlan(heads, 20, isa, n_blocks=2) as plan:
                expected = (
                    plan.attend(pool, *sequence[:]).tobytes(),
                    plan.attend(pool, tiny, *sequence[:][1:]).tobytes(),
                )
                batch = plan.batch(20)
                got = []
                for q in (sequence.q, tiny):
                    for place, values in ((plan.q, q), (plan.k, sequence.k), (plan.v, sequence.v)):
                        plan.write(place, values)
                    with hostile_environment() as mode:
                        status = LIBRARY.emel_plan_run(plan.handle, pool.handle, batch.record, None)
                        after = control_word()
                    assert status == 0
                    assert after == mode
                    got.append(plan.read(plan.out, sequence.q.shape).tobytes())
                assert tuple(got) == expected


@needs_mode
def test_products_give_the_same_bits_in_any_mode(routes: dict[str, int]) -> None:
    product = random_product(TensorType.Q4_1, 37, 160)
    x = np.random.default_rng(2).standard_normal((3, 160)).astype(np.float32)
    with LanePool(2) as pool:
        expected = product.run(x, 0, pool)
        for isa in routes.values():
            with hostile_environment():
                got = product.run(x, isa, pool)
            assert np.array_equal(got, expected)


def helper_results() -> list[bytes]:
    """What the functions outside plans compute, over values that rounding would show in."""
    rng = np.random.default_rng(3)
    logits = rng.standard_normal(997).astype(np.float32)
    steps = (Step.TOP_P, Step.MIN_P, Step.TEMPERATURE)
    sampler = NativeSampler(997, seed=5, steps=steps, temperature=0.7, top_p=0.9, min_p=0.01)
    frequencies = np.zeros(64)
    values = np.zeros(3200, np.float32)
    raw = rng.integers(0, 256, 2000, np.uint8)
    raw[1::20] &= 0x3B  # finite float16 scales and offsets
    raw[3::20] &= 0x3B
    tokens = [sampler.choose(logits.ctypes.data, position) for position in range(300)]
    check(LIBRARY.emel_rope_frequencies(10000.0, 128, frequencies.ctypes.data))
    check(LIBRARY.emel_dequantize(int(TensorType.Q4_1), raw.ctypes.data, raw.nbytes, values.ctypes.data, 3200))
    return [bytes(str(tokens), "ascii"), frequencies.tobytes(), values.tobytes()]


@needs_mode
def test_sampling_and_helpers_give_the_same_bits_in_any_mode_and_restore_it() -> None:
    expected = helper_results()
    with hostile_environment() as mode:
        got = helper_results()
        after = control_word()
    assert after == mode
    for name, one, other in zip(("draws", "frequencies", "values"), got, expected, strict=True):
        assert one == other, name


def test_runs_use_as_many_lanes_as_they_are_told_to() -> None:
    plan, x, out = gated_plan(4, 320)
    values = np.random.default_rng(2).standard_normal((4, 320)).astype(np.float32)
    with plan, LanePool(5) as pool:
        plan.write(x, values)
        plan.run(pool, 4)
        expected = plan.read(out, (4, 320)).copy()
        for n_lanes in (3, 1, 2, 5, 4, 1, 5):
            pool.use(n_lanes)
            assert pool.n_used == n_lanes
            for pause in (0, 0, 0.003):  # awake, and asleep
                time.sleep(pause)
                plan.write(out, np.zeros((4, 320)))
                plan.run(pool, 4)
                assert np.array_equal(plan.read(out, (4, 320)), expected)
        for refused in (0, 6):
            with pytest.raises(ValueError, match="1 to all of them are allowed"):
                pool.use(refused)
        assert pool.n_used == 5
        pool.use(2)  # and is closed while three are parked


def test_waiting_for_a_lane_without_a_cpu_is_told() -> None:
    plan, x, _ = gated_plan(1, 64)
    with plan, LanePool(64) as pool:  # of which no machine here has CPUs enough
        plan.write(x, np.ones(64))
        for _ in range(50):
            plan.run(pool)
        assert LIBRARY.emel_pool_waited(pool.handle) > 0
