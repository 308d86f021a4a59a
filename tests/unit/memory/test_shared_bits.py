"""Invariant: logits do not depend on how blocks came about: computed, shared, copied, rolled back, or restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emel.graph.batch import Batch, Outputs
from emel.graph.capacity import Capacity
from emel.graph.reservation import ReservedGraph
from emel.kernel.features import available_routes
from emel.kernel.pool import LanePool
from emel.memory.kv import KvCache
from emel.memory.saved import Origin, restore_sequence, save_sequence
from unit.graph.tiny import Tiny, pack_weights, raw_weights

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

TINY = Tiny(n_layers=3)
PROMPT = [(7 * i * i + 3) % 20 for i in range(40)]


class Runner:
    """A cache with a plan over it."""

    def __init__(self, cache: KvCache, graph: ReservedGraph, batch: Batch) -> None:
        self.cache = cache
        self.graph = graph
        self.batch = batch

    def step(self, wanted: dict[int, Sequence[int]]) -> list[bytes]:
        """Computes in one run what sequences do not hold yet of their tokens; the logits of each one's last token."""
        self.batch.clear()
        ordered = sorted(wanted)
        firsts = self.cache.reserve_all([(each, len(wanted[each]) - self.cache.n_tokens(each)) for each in ordered])
        outputs = [
            self.batch.add(wanted[each][first:], first, each, outputs=Outputs.LAST)
            for each, first in zip(ordered, firsts, strict=True)
        ]
        self.graph.compute(self.batch)
        for each in ordered:
            self.cache.publish(each, wanted[each])
        return [self.batch.logits(output).tobytes() for output in outputs]

    def solo(self, ids: Sequence[int]) -> bytes:
        """The logits after these tokens, computed alone in blocks of their own."""
        sequence, n_cached = self.cache.open_with_prefix(ids, reuse=False)
        assert n_cached == 0
        (logits,) = self.step({sequence: ids})
        self.cache.close_sequence(sequence)
        return logits


@pytest.fixture
def runner() -> Iterator[Runner]:
    graph = TINY.build()
    with LanePool(2) as pool:
        weights = pack_weights(graph, raw_weights(graph), pool)
        cache = KvCache(n_kv_layers=graph.n_kv_layers, heads=graph.heads, n_ctx=64, max_sequences=4)
        capacity = Capacity(160, 4, 4, cache.n_blocks)
        route = list(available_routes().values())[-1]
        with ReservedGraph(TINY.build, weights, capacity, pool=pool, route=route) as reserved:
            batch = Batch(capacity, graph.n_vocab, cache.binding)
            yield Runner(cache, reserved, batch)
            batch.close()
        cache.close()
        weights.close()


def test_warm_prefix_gives_the_bits_of_a_cold_one(runner: Runner) -> None:
    expected = runner.solo(PROMPT)
    first, _ = runner.cache.open_with_prefix(PROMPT)
    assert runner.step({first: PROMPT}) == [expected]
    second, n_cached = runner.cache.open_with_prefix(PROMPT)
    assert n_cached == 32
    assert runner.step({second: PROMPT}) == [expected]


def test_forks_that_part_in_one_step_give_their_solo_bits(runner: Runner) -> None:
    parent, _ = runner.cache.open_with_prefix(PROMPT)
    runner.step({parent: PROMPT})
    children = [runner.cache.fork(parent) for _ in range(2)]
    wanted: dict[int, Sequence[int]] = {each: [*PROMPT, 1 + index] for index, each in enumerate([parent, *children])}
    assert runner.step(wanted) == [runner.solo(ids) for ids in wanted.values()]
    assert len({runner.cache.blocks(each)[2] for each in wanted}) == 3
    assert len({runner.cache.blocks(each)[:2] for each in wanted}) == 1


def test_prefixes_computed_at_once_are_joined_without_a_change_of_bits(runner: Runner) -> None:
    opened = [runner.cache.open_with_prefix(PROMPT)[0] for _ in range(3)]
    runner.step(dict.fromkeys(opened, PROMPT))
    assert len({runner.cache.blocks(each)[:2] for each in opened}) == 1
    wanted: dict[int, Sequence[int]] = {each: [*PROMPT, each] for each in opened}
    assert runner.step(wanted) == [runner.solo(ids) for ids in wanted.values()]


def test_rollback_into_a_published_block_gives_solo_bits(runner: Runner) -> None:
    sequence, _ = runner.cache.open_with_prefix(PROMPT)
    runner.step({sequence: PROMPT})
    runner.cache.rollback(sequence, 15)
    ids = [*PROMPT[:25], 9, 9, 9]
    assert runner.step({sequence: ids}) == [runner.solo(ids)]


@pytest.mark.parametrize("n_tokens", [16, 40])
def test_restored_sequence_goes_on_with_the_same_bits(runner: Runner, tmp_path: Path, n_tokens: int) -> None:
    origin = Origin(bytes(32), 1)
    prompt = PROMPT[:n_tokens]
    sequence, _ = runner.cache.open_with_prefix(prompt)
    runner.step({sequence: prompt})
    save_sequence(runner.cache, sequence, prompt, tmp_path / "s", origin)
    runner.cache.close_sequence(sequence)
    held = runner.cache.open()
    runner.step({held: [5] * 20})
    restored, ids = restore_sequence(runner.cache, tmp_path / "s", origin)
    assert ids == prompt
    assert runner.step({restored: [*ids, 3]}) == [runner.solo([*prompt, 3])]
