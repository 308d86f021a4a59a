"""What a step of many sequences needs, and forks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emel.memory.errors import CacheError, CacheFullError
from emel.memory.sequences import SequenceState, blocks_wanted
from unit.memory.written import extend, holds, make_cache, room, table_row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emel.memory.kv import KvCache


@pytest.fixture
def cache() -> Iterator[KvCache]:
    cache = make_cache(n_ctx=64, max_sequences=3, n_blocks=6)
    yield cache
    cache.close()


def test_blocks_wanted_counts_growth_and_copies() -> None:
    def users(block: int) -> int:
        return {0: 1, 1: 3}[block]

    own, shared, full = SequenceState(5, [0]), SequenceState(5, [1]), SequenceState(16, [1])
    assert blocks_wanted([(own, 11)], users) == 0
    assert blocks_wanted([(own, 12), (full, 1)], users) == 2
    assert blocks_wanted([(shared, 0)], users) == 0
    assert blocks_wanted([(shared, 1), (SequenceState(5, [1]), 1)], users) == 2
    assert blocks_wanted([(shared, 1), (SequenceState(6, [1]), 1), (SequenceState(7, [1]), 20)], users) == 3
    assert blocks_wanted([], users) == 0


def test_fork_shares_blocks_until_one_writes(cache: KvCache) -> None:
    parent = cache.open()
    extend(cache, parent, [], list(range(20)))
    child = cache.fork(parent)
    assert (child, cache.n_tokens(child), cache.blocks(child)) == (1, 20, cache.blocks(parent))
    assert table_row(cache, child, 2) == [0, 1]
    assert cache.n_blocks_in_use == 2
    extend(cache, child, list(range(20)), [7])
    assert cache.blocks(child) == (0, 2)
    assert table_row(cache, child, 2) == [0, 2]
    extend(cache, parent, list(range(20)), [8])
    assert cache.blocks(parent) == (0, 1)
    assert holds(cache, parent, [*range(20), 8])
    assert holds(cache, child, [*range(20), 7])


def test_fork_outlives_its_parent(cache: KvCache) -> None:
    parent = cache.open()
    extend(cache, parent, [], list(range(20)))
    child = cache.fork(parent)
    cache.close_sequence(parent)
    assert cache.n_blocks_in_use == 2
    extend(cache, child, list(range(20)), [1, 2])
    assert cache.blocks(child) == (0, 1)
    assert holds(cache, child, [*range(20), 1, 2])


def test_fork_at_the_border_of_a_block_copies_nothing(cache: KvCache) -> None:
    parent = cache.open()
    extend(cache, parent, [], list(range(16)))
    child = cache.fork(parent)
    for sequence, token in ((child, 1), (parent, 2)):
        extend(cache, sequence, list(range(16)), [token])
        assert holds(cache, sequence, [*range(16), token])
    assert (cache.blocks(parent), cache.blocks(child)) == ((0, 2), (0, 1))


def test_fork_rolls_back_without_harm_to_its_parent(cache: KvCache) -> None:
    parent = cache.open()
    tokens = list(range(40))
    extend(cache, parent, [], tokens)
    child = cache.fork(parent)
    cache.rollback(child, 30)
    assert (cache.n_blocks_in_use, cache.pool.count(0), cache.pool.count(1)) == (3, 2, 1)
    extend(cache, child, tokens[:10], [9] * 20)
    assert holds(cache, parent, tokens)
    cache.rollback(child, 1000)
    assert cache.blocks(child) == ()
    assert holds(cache, parent, tokens)


def test_fork_needs_a_free_row_and_an_open_parent(cache: KvCache) -> None:
    with pytest.raises(CacheError, match="sequence 0 is not open"):
        cache.fork(0)
    parent = cache.open()
    extend(cache, parent, [], [1])
    for _ in range(2):
        assert cache.can_open()
        cache.fork(parent)
    assert not cache.can_open()
    with pytest.raises(CacheFullError, match="all 3 sequences are in use"):
        cache.fork(parent)
    assert cache.pool.count(0) == 3


def test_reserve_counts_the_copy_of_a_shared_tail(cache: KvCache) -> None:
    parent = cache.open()
    extend(cache, parent, [], list(range(20)))
    child, other = cache.fork(parent), cache.open()
    cache.reserve(other, 64)
    assert (cache.free_blocks(), room(cache, parent), room(cache, child)) == (0, 0, 0)
    assert cache.reserve(child, 0) == 20
    with pytest.raises(CacheFullError, match="1 more tokens need 1 blocks, 0 of 6 are free"):
        cache.reserve(child, 1)
    assert cache.blocks(child) == cache.blocks(parent)
    cache.rollback(other, 16)
    assert (room(cache, parent), room(cache, child)) == (12, 12)
    assert cache.blocks_needed([(parent, 12)]) == cache.blocks_needed([(parent, 12), (child, 12)]) == 1
    assert cache.blocks_needed([(parent, 13)]) == 2
    assert cache.can_reserve_all([(parent, 12), (child, 12)])
    assert not cache.can_reserve_all([(parent, 12), (child, 13)])


def test_step_reserves_for_all_or_for_none(cache: KvCache) -> None:
    one, two = cache.open(), cache.open()
    cache.reserve(one, 40)
    cache.reserve(two, 30)
    with pytest.raises(CacheFullError, match="26 more tokens need 2 blocks, 1 of 6 are free"):
        cache.reserve_all([(one, 20), (two, 6)])
    with pytest.raises(CacheFullError, match="40 more tokens after 30 exceed the context of 64"):
        cache.reserve_all([(one, 1), (two, 40)])
    with pytest.raises(CacheError, match="cannot reserve -1 tokens"):
        cache.reserve_all([(one, 1), (two, -1)])
    with pytest.raises(CacheError, match="a sequence is named twice"):
        cache.reserve_all([(one, 1), (one, 1)])
    with pytest.raises(CacheError, match="sequence 2 is not open"):
        cache.reserve_all([(one, 1), (2, 1)])
    assert (cache.n_tokens(one), cache.n_tokens(two), cache.free_blocks()) == (40, 30, 1)
    assert not cache.can_reserve_all([(one, -1)])
    assert cache.reserve_all([(two, 6), (one, 3)]) == [30, 40]
    assert cache.reserve_all([]) == []


def test_closing_gives_back_what_no_other_sequence_uses(cache: KvCache) -> None:
    parent = cache.open()
    extend(cache, parent, [], list(range(40)))
    child = cache.fork(parent)
    extend(cache, child, list(range(40)), [1] * 10)
    free = cache.free_blocks()
    cache.close_sequence(child)
    assert cache.free_blocks() == free + 2  # its last two are its alone
    cache.publish(parent, list(range(40)))
    cache.close_sequence(parent)
    assert cache.free_blocks() == free + 5
