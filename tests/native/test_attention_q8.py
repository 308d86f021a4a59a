"""Attention over a KV cache of Q8_0: near float64, near what float16 gives, the same bits however it is cut."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emel._native import LIBRARY, check
from emel.tensor.types import TensorType
from native.test_attention import (
    AttentionPlan,
    Heads,
    Sequence,
    cached,
    exact_attention,
    in_chunks,
    random_sequence,
    shuffled_table,
)

if TYPE_CHECKING:
    from emel.kernel.pool import LanePool

Q8 = TensorType.Q8_0
F16_MAX = 65504.0
SINKS = np.array([-3, 0.5, 4], np.float32)
GEOMETRIES = {
    "one head": Heads(1, 1, 64, kv_type=Q8),
    "grouped": Heads(9, 3, 64, kv_type=Q8),
    "head of 16": Heads(2, 2, 16, kv_type=Q8),
    "head of 40": Heads(6, 2, 40, scale=0.3, kv_type=Q8),
    "head of 80": Heads(4, 2, 80, kv_type=Q8),
    "head of 96": Heads(4, 2, 96, kv_type=Q8),
    "odd head of 7": Heads(2, 1, 7, kv_type=Q8),
    "head of 512": Heads(1, 1, 512, scale=0.04, kv_type=Q8),
    "more rows than a tile": Heads(70, 1, 16, kv_type=Q8),
}
LOOKS = {
    "plain": Heads(kv_type=Q8),
    "a window within a block": Heads(window=5, kv_type=Q8),
    "a window over chunks": Heads(window=300, kv_type=Q8),
    "all at once": Heads(window=300, cap=5.0, sinks=SINKS, kv_type=Q8),
}


@pytest.mark.parametrize("heads", GEOMETRIES.values(), ids=GEOMETRIES)
@pytest.mark.parametrize("n", [1, 2, 16, 17, 40])
def test_q8_attention_is_near_float64(heads: Heads, n: int, routes: dict[str, int], lanes: dict[int, LanePool]) -> None:
    sequence = random_sequence(heads, n)
    expected, bound = exact_attention(heads, sequence)
    specification = in_chunks(heads, sequence, [n], routes["scalar"], lanes[1])
    assert (np.abs(specification - expected) <= bound).all()
    for isa in routes.values():
        assert np.array_equal(in_chunks(heads, sequence, [n], isa, lanes[3]), specification)


@pytest.mark.parametrize("heads", LOOKS.values(), ids=LOOKS)
def test_q8_attention_is_the_same_however_it_is_fed(
    heads: Heads, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    n = 530
    sequence = random_sequence(heads, n)
    expected, bound = exact_attention(heads, sequence)
    best = list(routes.values())[-1]
    whole = in_chunks(heads, sequence, [n], best, lanes[1])
    assert (np.abs(whole - expected) <= bound).all()
    for chunks in ([255, 1, 1, 255, 16, 2], [256, 256, 18], [510] + [1] * 20, [7] * 75 + [5]):
        for pool in lanes.values():
            assert np.array_equal(in_chunks(heads, sequence, chunks, best, pool), whole), chunks[:6]
    for isa in routes.values():
        assert np.array_equal(in_chunks(heads, sequence, [500, 17, 13], isa, lanes[3]), whole)


@pytest.mark.parametrize("window", [0, 33])
def test_q8_attention_both_ways_is_near_float64(
    window: int, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    heads = Heads(4, 2, 32, both_ways=1, window=window, kv_type=Q8)
    sequence = random_sequence(heads, 270)
    expected, bound = exact_attention(heads, sequence)
    specification = in_chunks(heads, sequence, [270], routes["scalar"], lanes[1])
    assert (np.abs(specification - expected) <= bound).all()
    for isa in routes.values():
        assert np.array_equal(in_chunks(heads, sequence, [270], isa, lanes[3]), specification)


def test_q8_attention_is_near_that_of_unrounded_keys(lanes: dict[int, LanePool]) -> None:
    """1/254 of a part's largest number is the most that a number is off by."""
    heads = Heads(9, 3, 64, kv_type=Q8)
    sequence = random_sequence(heads, 300)
    near, _ = exact_attention(replace(heads, kv_type=TensorType.F16), sequence)
    out = in_chunks(heads, sequence, [300], 0, lanes[1])
    assert np.sqrt(((out - near) ** 2).mean() / (near**2).mean()) < 0.02


def stored_numbers(heads: Heads, sequence: Sequence, isa: int, pool: LanePool) -> np.ndarray:
    """(n, n_kv_heads, head_dim): what windows of one key make of keys and values is the cached value itself."""
    return in_chunks(replace(heads, window=1), sequence, [len(sequence.q)], isa, pool)


@pytest.mark.parametrize(
    "values",
    [
        [0.0] * 32,
        [1e-30, -1e-30] * 16,
        [-0.0] * 32,
        [127 * 0.5, 0.25, -0.25, 0.75, 1.25, -0.75] + [0.0] * 26,  # ties of a scale of one half
        [127 * 2.0**-24 * 1.4] * 32,  # a subnormal scale that is rounded down
        [127 * F16_MAX] * 32,
        [3.0e-5 * (-1) ** i * i for i in range(32)],
    ],
    ids=["zeros", "too small", "minus zeros", "ties", "subnormal", "the largest", "a ramp"],
)
def test_q8_numbers_are_those_of_the_formula(
    values: list[float], routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    heads = Heads(1, 1, 32, kv_type=Q8)
    sequence = random_sequence(heads, 3)
    sequence.v[:] = np.array(values, np.float32)
    sequence.k[:] = 0
    for isa in routes.values():
        out = stored_numbers(heads, sequence, isa, lanes[1])
        assert np.array_equal(out, cached(sequence.v, Q8).astype(np.float32))


@pytest.mark.parametrize(
    ("name", "bad"),
    [*((name, bad) for name in "kvq" for bad in (np.nan, np.inf, -np.inf)), ("k", 128 * F16_MAX), ("v", 128 * F16_MAX)],
)
def test_q8_attention_hides_nothing_that_is_not_finite(
    name: str, bad: float, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    heads = Heads(2, 1, 40, kv_type=Q8)
    sequence = random_sequence(heads, 20)
    clean = in_chunks(heads, sequence, [20], 0, lanes[1])
    getattr(sequence, name)[10, 0, 5] = bad
    for isa in routes.values():
        out = in_chunks(heads, sequence, [20], isa, lanes[3])
        assert np.array_equal(out[:10], clean[:10])
        spoiled = out[10:11] if name == "q" else out[10:]
        assert not np.isfinite(spoiled).all(axis=(1, 2)).any()


def test_q8_sequences_in_one_batch_get_their_solo_bits(routes: dict[str, int], lanes: dict[int, LanePool]) -> None:
    heads, lengths = Heads(6, 2, 40, n_rot=20, pairing=1, kv_type=Q8), [3, 300, 1, 17]
    sequences = [random_sequence(heads, n, seed) for seed, n in enumerate(lengths)]
    solo = [in_chunks(heads, s, [len(s.q)], 0, lanes[1]) for s in sequences]
    together = [np.concatenate([getattr(s, name) for s in sequences]) for name in "qkv"]
    for isa in routes.values():
        with AttentionPlan(heads, sum(lengths), isa, 80, max_sequences=4) as plan:
            out = plan.attend(
                lanes[3],
                *together,
                positions=np.concatenate([np.arange(n) for n in lengths]),
                sequences=np.repeat(np.arange(4), lengths),
                block_table=shuffled_table(80, 4),
            )
        assert np.array_equal(out, np.concatenate(solo))


def test_q8_cache_is_about_half_the_size() -> None:
    f16, q8 = (LIBRARY.emel_kv_bytes(30, 256, 3, 64, kv_type) for kv_type in (TensorType.F16, Q8))
    assert 0.5 < q8 / f16 < 0.54


def test_scratch_is_sized_by_the_longest_sequence(lanes: dict[int, LanePool]) -> None:
    """A sequence may have as many blocks as the plan says, and not one more, however many the cache has."""
    heads = Heads(2, 1, 32)
    sequence = random_sequence(heads, 34)
    with AttentionPlan(heads, 34, n_blocks=600, max_sequences=2, sequence_blocks=2) as plan:
        with AttentionPlan(heads, 34, n_blocks=600, max_sequences=2) as wide:
            assert plan.desc.arena_bytes < wide.desc.arena_bytes
        out = plan.attend(lanes[3], *sequence[:32], block_table=shuffled_table(600, 2))
        assert np.array_equal(out, in_chunks(heads, sequence, [34], 0, lanes[1])[:32])
        batch = plan.batch(34, block_table=shuffled_table(600, 2))
        assert LIBRARY.emel_plan_run(plan.handle, lanes[1].handle, batch.record, None) == 4
        with pytest.raises(Exception, match="position 33, the plan's sequences have at most 2 blocks of 16 tokens"):
            check(4)
