"""Sliding windows, both ways, caps and sinks: near float64, and the same bits however a sequence is fed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from native.test_attention import AttentionPlan, Heads, exact_attention, in_chunks, random_sequence, shuffled_table

if TYPE_CHECKING:
    from emel.kernel.pool import LanePool

SINKS = np.array([-3, 0.5, 4], np.float32)
LOOKS = {
    "a window of 1": Heads(window=1),
    "a window within a block": Heads(window=5),
    "a window of a block": Heads(window=16),
    "a window over blocks": Heads(window=37),
    "a window of a chunk": Heads(window=256),
    "a window over chunks": Heads(window=300),
    "a window past everything": Heads(window=2**32 - 1),
    "a cap": Heads(cap=2.0),
    "sinks": Heads(sinks=SINKS),
    "all at once": Heads(window=300, cap=5.0, sinks=SINKS),
    "many rows": Heads(70, 1, 16, window=20, cap=50.0),
}


@pytest.mark.parametrize("heads", LOOKS.values(), ids=LOOKS)
def test_a_look_is_near_float64_and_the_same_however_it_is_fed(
    heads: Heads, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    """One or a few tokens at a time past 256 split the chunks over the lanes."""
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


@pytest.mark.parametrize("window", [0, 1, 2, 33, 300])
@pytest.mark.parametrize("n", [1, 15, 16, 17, 40, 270])
def test_both_ways_is_near_float64(n: int, window: int, routes: dict[str, int], lanes: dict[int, LanePool]) -> None:
    heads = Heads(4, 2, 32, both_ways=1, window=window)
    sequence = random_sequence(heads, n)
    expected, bound = exact_attention(heads, sequence)
    specification = in_chunks(heads, sequence, [n], routes["scalar"], lanes[1])
    assert (np.abs(specification - expected) <= bound).all()
    for isa in routes.values():
        assert np.array_equal(in_chunks(heads, sequence, [n], isa, lanes[3]), specification)


def test_both_ways_sees_its_own_sequence_alone(routes: dict[str, int], lanes: dict[int, LanePool]) -> None:
    heads, lengths = Heads(4, 2, 32, both_ways=1), [3, 300, 1, 17]
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


def test_a_window_sees_nothing_of_what_lies_before_it(lanes: dict[int, LanePool]) -> None:
    """Not even NaN: those keys and values take no part at all."""
    heads = Heads(3, 1, 32, window=20)
    sequence = random_sequence(heads, 300)
    clean = in_chunks(heads, sequence, [300], 0, lanes[1])
    sequence.k[:260], sequence.v[:260] = np.nan, np.inf
    for pool in lanes.values():
        spoiled = in_chunks(heads, sequence, [250, 40, 1, 9], 0, pool)
        assert np.array_equal(spoiled[279:], clean[279:])
        assert not np.isfinite(spoiled[:279]).all(axis=(1, 2)).any()


def test_a_window_of_everything_is_no_window(lanes: dict[int, LanePool]) -> None:
    heads = Heads()
    sequence = random_sequence(heads, 300)
    plain = in_chunks(heads, sequence, [300], 0, lanes[1])
    assert np.array_equal(in_chunks(replace(heads, window=300), sequence, [300], 0, lanes[3]), plain)
    assert np.array_equal(in_chunks(replace(heads, window=1), sequence, [300], 0, lanes[3])[:1], plain[:1])


def test_a_window_of_one_gives_the_value_itself(lanes: dict[int, LanePool]) -> None:
    heads = Heads(1, 1, 16, window=1)
    sequence = random_sequence(heads, 40)
    out = in_chunks(heads, sequence, [40], 0, lanes[1])
    assert np.array_equal(out[:, 0], sequence.v[:, 0].astype(np.float16).astype(np.float32))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_cap_hides_no_score_that_is_not_finite(
    bad: float, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    heads = Heads(3, 1, 32, cap=10.0)
    sequence = random_sequence(heads, 20)
    sequence.k[10, 0, 3] = bad
    for isa in routes.values():
        out = in_chunks(heads, sequence, [20], isa, lanes[3])
        assert np.isfinite(out[:10]).all()
        assert not np.isfinite(out[10:]).all(axis=(1, 2)).any()


def test_a_sink_far_above_every_score_takes_all_the_weight(lanes: dict[int, LanePool]) -> None:
    heads = Heads(3, 1, 32, sinks=np.array([80, -80, 0], np.float32))
    sequence = random_sequence(heads, 20)
    out = in_chunks(heads, sequence, [20], 0, lanes[1])
    plain = in_chunks(replace(heads, sinks=None), sequence, [20], 0, lanes[1])
    assert np.abs(out[:, 0]).max() < 1e-20
    assert np.array_equal(out[:, 1], plain[:, 1])
    assert np.isnan(in_chunks(replace(heads, sinks=np.full(3, np.nan)), sequence, [20], 0, lanes[1])).all()
