"""Invariant: sequences never share a block, rows of the table name their blocks, and nothing leaks."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from emel.graph.ops import Heads
from emel.kernel.sizes import kv_bytes
from emel.memory.errors import CacheError, CacheFullError
from emel.memory.kv import KvCache, blocks_for
from emel.tensor.types import TensorType
from unit.memory.written import room

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADS = Heads(2, 1, 32)


def make(n_ctx: int = 64, max_sequences: int = 2, n_blocks: int | None = None) -> KvCache:
    return KvCache(n_kv_layers=1, heads=HEADS, n_ctx=n_ctx, max_sequences=max_sequences, n_blocks=n_blocks)


@pytest.fixture
def cache() -> Iterator[KvCache]:
    cache = make()
    yield cache
    cache.close()


def row(cache: KvCache, sequence: int) -> list[int]:
    """A row of the block table as the native library reads it."""
    binding = cache.binding
    raw = (ctypes.c_int32 * (binding.n_rows * binding.stride)).from_address(binding.table_address)
    return list(raw[sequence * binding.stride : (sequence + 1) * binding.stride])


@pytest.mark.parametrize(("n_tokens", "n_blocks"), [(0, 0), (1, 1), (16, 1), (17, 2), (64, 4)])
def test_blocks_hold_sixteen_tokens(n_tokens: int, n_blocks: int) -> None:
    assert blocks_for(n_tokens) == n_blocks


def test_cache_of_q8_is_smaller_and_says_what_it_holds() -> None:
    cache = KvCache(n_kv_layers=1, heads=HEADS, n_ctx=100, kv_type=TensorType.Q8_0)
    assert cache.binding.kv_type is cache.geometry.kv_type is TensorType.Q8_0
    assert cache.n_bytes == kv_bytes(1, 7, 1, 32, TensorType.Q8_0) < kv_bytes(1, 7, 1, 32)
    cache.close()
    assert make().binding.kv_type is TensorType.F16


def test_cache_is_sized_by_the_context_cap() -> None:
    cache = make(n_ctx=100, max_sequences=3)
    assert (cache.stride, cache.n_blocks) == (7, 21)
    assert cache.n_bytes == cache.binding.n_bytes == kv_bytes(1, 21, 1, 32)
    assert (cache.binding.n_rows, cache.binding.stride) == (3, 7)
    cache.close()


def test_cache_gives_positions_in_order_and_blocks_as_needed(cache: KvCache) -> None:
    sequence = cache.open()
    assert cache.reserve(sequence, 10) == 0
    assert cache.blocks(sequence) == (0,)
    assert cache.reserve(sequence, 6) == 10
    assert cache.blocks(sequence) == (0,)
    assert cache.reserve(sequence, 1) == 16
    assert cache.blocks(sequence) == (0, 1)
    assert cache.reserve(sequence, 40) == 17
    assert row(cache, sequence) == [0, 1, 2, 3]
    assert cache.n_tokens(sequence) == 57


def test_cache_keeps_sequences_apart(cache: KvCache) -> None:
    first, second = cache.open(), cache.open()
    assert (first, second) == (0, 1)
    for _ in range(3):
        cache.reserve(first, 16)
        cache.reserve(second, 16)
    assert row(cache, first)[:3] == [0, 2, 4]
    assert row(cache, second)[:3] == [1, 3, 5]


def test_cache_is_capped_by_the_context(cache: KvCache) -> None:
    sequence = cache.open()
    cache.reserve(sequence, 60)
    assert room(cache, sequence) == 4
    with pytest.raises(CacheFullError, match="5 more tokens after 60 exceed the context of 64"):
        cache.reserve(sequence, 5)
    assert cache.reserve(sequence, 4) == 60
    assert room(cache, sequence) == 0


def test_cache_context_need_not_be_whole_blocks() -> None:
    cache = make(n_ctx=20, max_sequences=1)
    sequence = cache.open()
    assert room(cache, sequence) == 20
    with pytest.raises(CacheFullError, match="exceed the context of 20"):
        cache.reserve(sequence, 21)
    cache.reserve(sequence, 20)
    with pytest.raises(CacheFullError, match="1 more tokens after 20 exceed"):
        cache.reserve(sequence, 1)
    cache.close()


def test_cache_reserves_all_or_nothing_when_blocks_run_out() -> None:
    cache = make(n_ctx=64, max_sequences=2, n_blocks=5)
    first, second = cache.open(), cache.open()
    cache.reserve(first, 50)
    assert room(cache, second) == 16
    with pytest.raises(CacheFullError, match="17 more tokens need 2 blocks, 1 of 5 are free"):
        cache.reserve(second, 17)
    assert (cache.n_tokens(second), cache.blocks(second), cache.pool.n_free) == (0, (), 1)
    assert room(cache, first) == 14
    cache.close()


def test_cache_rolls_back_and_frees_empty_blocks(cache: KvCache) -> None:
    sequence = cache.open()
    cache.reserve(sequence, 40)
    cache.rollback(sequence, 8)
    assert cache.blocks(sequence) == (0, 1)
    assert cache.reserve(sequence, 1) == 32
    assert cache.blocks(sequence) == (0, 1, 2)
    cache.rollback(sequence, 1000)
    assert (cache.n_tokens(sequence), cache.blocks(sequence), cache.pool.n_free) == (0, (), 8)


def test_cache_closes_sequences_and_reuses_their_rows(cache: KvCache) -> None:
    first, second = cache.open(), cache.open()
    cache.reserve(first, 20)
    cache.reserve(second, 20)
    assert not cache.can_open()
    with pytest.raises(CacheFullError, match="all 2 sequences are in use"):
        cache.open()
    cache.close_sequence(first)
    assert cache.open() == first
    assert cache.n_tokens(first) == 0
    cache.reserve(first, 1)
    assert cache.blocks(first) == (0,)


def test_cache_leaves_blocks_that_others_own(cache: KvCache) -> None:
    sequence = cache.open()
    cache.reserve(sequence, 16)
    cache.pool.retain(cache.blocks(sequence))
    cache.close_sequence(sequence)
    assert (cache.pool.count(0), cache.pool.n_free) == (1, 7)


@pytest.mark.parametrize("sequence", [-1, 0, 2])
def test_cache_refuses_sequences_that_are_not_open(cache: KvCache, sequence: int) -> None:
    for use in (cache.n_tokens, cache.blocks, cache.close_sequence):
        with pytest.raises(CacheError, match=f"sequence {sequence} is not open"):
            use(sequence)
    for change in (cache.reserve, cache.rollback):
        with pytest.raises(CacheError, match=f"sequence {sequence} is not open"):
            change(sequence, 1)
    with pytest.raises(CacheError, match=f"sequence {sequence} is not open"):
        cache.can_reserve_all([(sequence, 1)])


def test_cache_refuses_negative_counts(cache: KvCache) -> None:
    sequence = cache.open()
    cache.reserve(sequence, 4)
    with pytest.raises(CacheError, match="cannot reserve -1 tokens"):
        cache.reserve(sequence, -1)
    with pytest.raises(CacheError, match="cannot roll back -1 tokens"):
        cache.rollback(sequence, -1)
    assert not cache.can_reserve_all([(sequence, -1)])
    assert cache.n_tokens(sequence) == 4


@pytest.mark.parametrize(("n_ctx", "max_sequences"), [(0, 1), (1, 0), (-5, 1)])
def test_cache_of_nothing_is_refused(n_ctx: int, max_sequences: int) -> None:
    with pytest.raises(CacheError, match="holds nothing"):
        make(n_ctx=n_ctx, max_sequences=max_sequences)


class Sequences(RuleBasedStateMachine):
    """Three sequences compete for ten blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = make(n_ctx=70, max_sequences=3, n_blocks=10)
        self.lengths: dict[int, int] = {}

    def teardown(self) -> None:
        self.cache.close()

    @precondition(lambda self: len(self.lengths) < 3)
    @rule()
    def open(self) -> None:
        self.lengths[self.cache.open()] = 0

    @precondition(lambda self: self.lengths)
    @rule(data=st.data(), n=st.integers(0, 80))
    def reserve(self, data: st.DataObject, n: int) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.lengths)))
        if self.cache.can_reserve_all([(sequence, n)]):
            assert self.cache.reserve(sequence, n) == self.lengths[sequence]
            self.lengths[sequence] += n
        else:
            with pytest.raises(CacheFullError):
                self.cache.reserve(sequence, n)

    @precondition(lambda self: self.lengths)
    @rule(data=st.data(), n=st.integers(0, 80))
    def rollback(self, data: st.DataObject, n: int) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.lengths)))
        self.cache.rollback(sequence, n)
        self.lengths[sequence] = max(self.lengths[sequence] - n, 0)

    @precondition(lambda self: self.lengths)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.lengths)))
        self.cache.close_sequence(sequence)
        del self.lengths[sequence]

    @invariant()
    def blocks_are_owned_once_and_named_in_the_table(self) -> None:
        owned = [block for sequence in self.lengths for block in self.cache.blocks(sequence)]
        assert len(owned) == len(set(owned))
        assert self.cache.pool.n_free == 10 - len(owned)
        for sequence, length in self.lengths.items():
            blocks = self.cache.blocks(sequence)
            assert self.cache.n_tokens(sequence) == length <= 70
            assert len(blocks) == blocks_for(length)
            assert row(self.cache, sequence)[: len(blocks)] == list(blocks)


TestSequences = Sequences.TestCase
