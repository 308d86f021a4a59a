"""Prefix reuse: what is found, what is kept, what is evicted first, and what never is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emel.memory import prefix
from emel.memory.blocks import BlockPool
from emel.memory.errors import CacheError, CacheFullError
from emel.memory.prefix import PrefixStore, full_block_ids
from unit.memory.written import extend, holds, make_cache, room

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emel.memory.kv import KvCache

A, B, C = [1] * 16, [2] * 16, [3] * 16


@pytest.fixture
def cache() -> Iterator[KvCache]:
    cache = make_cache(n_ctx=64, max_sequences=3, n_blocks=8)
    yield cache
    cache.close()


def computed(cache: KvCache, ids: list[int], *, reuse: bool = True) -> int:
    """A sequence that holds all of a prompt, published."""
    sequence, n_cached = cache.open_with_prefix(ids, reuse=reuse)
    extend(cache, sequence, ids[:n_cached], ids[n_cached:])
    cache.publish(sequence, ids)
    return sequence


def test_prefix_is_found_while_its_sequence_is_open_and_after(cache: KvCache) -> None:
    ids = A + B + [9] * 5
    first = computed(cache, ids)
    assert cache.match(ids) == 32
    second, n_cached = cache.open_with_prefix(ids)
    assert n_cached == cache.n_tokens(second) == 32
    assert cache.blocks(second) == cache.blocks(first)[:2]
    assert holds(cache, second, A + B)
    cache.close_sequence(first)
    cache.close_sequence(second)
    assert cache.match(ids) == 32
    assert (cache.n_blocks_in_use, cache.free_blocks(), cache.pool.n_free) == (0, 8, 6)


def test_prefix_leaves_at_least_one_token_to_compute(cache: KvCache) -> None:
    computed(cache, A + B)
    assert cache.match(A + B) == 16
    assert cache.match([*A, *B, 7]) == 32
    assert cache.match(A) == cache.match(A[:15]) == cache.match([]) == 0


def test_prefix_needs_the_same_tokens_from_the_start(cache: KvCache) -> None:
    computed(cache, A + B)
    assert cache.match(B + A + [0]) == 0
    assert cache.match(A + A + [0]) == 16
    assert cache.match([0, *A, *B]) == 0


def test_prefix_of_a_part_of_a_block_is_not_published(cache: KvCache) -> None:
    sequence = computed(cache, A + B[:15])
    assert cache.prefixes.n_stored == 1
    extend(cache, sequence, A + B[:15], B[15:])
    assert cache.publish(sequence, A + B) == 1
    assert cache.publish(sequence, A + B) == 0


def test_prefix_reuse_can_be_off(cache: KvCache) -> None:
    computed(cache, A + B)
    sequence, n_cached = cache.open_with_prefix([*A, *B, 1], reuse=False)
    assert n_cached == cache.n_tokens(sequence) == 0
    extend(cache, sequence, [], C + C)
    assert cache.publish(sequence, C + C) == 0
    assert cache.publish(cache.fork(sequence), C + C) == 0
    assert cache.match([*C, 0]) == 0
    assert (cache.counters.n_lookups, cache.counters.n_hits) == (1, 0)


def test_prefix_counts_what_it_does(cache: KvCache) -> None:
    cache.close_sequence(computed(cache, A + B))
    cache.close_sequence(computed(cache, [*A, *B, 5]))
    counters = cache.counters
    assert (counters.n_lookups, counters.n_hits, counters.n_tokens_reused) == (2, 1, 32)
    assert (counters.n_published, counters.n_evicted) == (2, 0)
    cache.prefixes.clear()
    assert (counters.n_evicted, cache.prefixes.n_stored, cache.pool.n_free) == (2, 0, 8)


def test_prefix_computed_twice_is_kept_once(cache: KvCache) -> None:
    ids = A + B + [4]
    first, second = cache.open(), cache.open()
    for sequence in (first, second):
        extend(cache, sequence, [], ids)
    twin = cache.fork(second)
    assert cache.n_blocks_in_use == 6
    cache.publish(first, ids)
    assert cache.publish(second, ids) == 2
    assert cache.blocks(second)[:2] == cache.blocks(twin)[:2] == cache.blocks(first)[:2]
    assert cache.n_blocks_in_use == 4
    assert all(holds(cache, sequence, ids) for sequence in (first, second, twin))


def test_prefix_evicts_the_least_recently_used_first_and_ends_before_starts(cache: KvCache) -> None:
    for ids in (A + B, C, A + C):
        cache.close_sequence(computed(cache, ids))
    sequence = cache.open()
    cache.reserve(sequence, 64)  # four are free, four stored
    assert [cache.match([*ids, 0]) for ids in (A + B, C, A + C)] == [32, 16, 32]
    other = cache.open()
    cache.reserve(other, 16)
    assert [cache.match([*ids, 0]) for ids in (A + B, C, A + C)] == [16, 16, 32]
    cache.reserve(other, 16)
    assert [cache.match([*ids, 0]) for ids in (A + B, C, A + C)] == [16, 0, 32]
    cache.reserve(other, 16)
    assert [cache.match([*ids, 0]) for ids in (A + B, C, A + C)] == [16, 0, 16]
    cache.reserve(other, 16)
    assert [cache.match([*ids, 0]) for ids in (A + B, C, A + C)] == [0, 0, 0]
    assert not cache.can_reserve_all([(other, 1)])


def test_prefix_is_not_evicted_while_a_sequence_uses_it(cache: KvCache) -> None:
    held = computed(cache, A + B)
    cache.close_sequence(computed(cache, C))
    other = cache.open()
    assert room(cache, other) == 64
    cache.reserve(other, 64)
    third = cache.open()
    assert room(cache, third) == 32
    cache.reserve(third, 32)
    with pytest.raises(CacheFullError, match="1 more tokens need 1 blocks, 0 of 8 are free"):
        cache.reserve(third, 1)
    assert (cache.match([*A, *B, 0]), cache.match([*C, 0])) == (32, 0)
    assert holds(cache, held, A + B)


def test_prefix_budget_bounds_what_nobody_uses() -> None:
    cache = make_cache(n_blocks=8, prefix_bytes=0)
    n_bytes = 2 * cache.geometry.bytes_per_block + 1
    cache.close()
    cache = make_cache(n_blocks=8, prefix_bytes=n_bytes)
    assert cache.prefixes.max_idle == 2
    sequence = computed(cache, A + B + C)
    assert cache.prefixes.n_stored == 3
    cache.close_sequence(sequence)
    assert (cache.prefixes.n_stored, cache.match([*A, *B, *C, 0]), cache.pool.n_free) == (2, 32, 6)
    cache.close()


def test_prefix_can_be_opened_when_its_blocks_are_the_last_ones(cache: KvCache) -> None:
    cache.close_sequence(computed(cache, A + B))
    other, third = cache.open(), cache.open()
    cache.reserve(other, 64)
    cache.reserve(third, 16)
    # One block is free, two are stored: they make three of which the prompt needs three, but only with its prefix.
    assert cache.can_open_with_prefix([*A, *B, 1])
    assert cache.can_open_with_prefix([*C, *C, 1])
    cache.reserve(third, 16)
    assert not cache.can_open_with_prefix([*A, *B, 1])
    assert cache.can_open_with_prefix([*A, *B])
    assert not cache.can_open_with_prefix([*C, *C, 1])
    assert not cache.can_open_with_prefix([1] * 65)


def test_prefix_gives_up_a_block_that_is_written_again(cache: KvCache) -> None:
    """A sequence that has the whole cache can roll back into a published block and go on without a spare one."""
    cache = make_cache(n_ctx=64, max_sequences=1)
    ids = A + B + C + [4] * 16
    sequence = computed(cache, ids)
    cache.rollback(sequence, 30)
    assert room(cache, sequence) == 30
    extend(cache, sequence, ids[:34], [5] * 30)
    assert holds(cache, sequence, [*ids[:34], *[5] * 30])
    assert (cache.match([*ids, 0]), cache.prefixes.n_stored) == (32, 2)
    cache.close()


def test_prefix_gives_up_what_lies_behind_a_block_that_is_written_again(cache: KvCache) -> None:
    sequence = computed(cache, A + B + C)
    cache.close_sequence(computed(cache, C))
    cache.rollback(sequence, 20)
    assert (cache.prefixes.n_stored, cache.prefixes.n_idle) == (4, 2)
    extend(cache, sequence, (A + B)[:28], [5])
    assert (cache.prefixes.n_stored, cache.prefixes.n_idle) == (2, 1)
    assert [cache.match([*ids, 0]) for ids in (A + B + C, C)] == [16, 16]
    assert cache.free_blocks() == 6


def test_prefix_keeps_a_block_that_is_written_again_by_one_of_two(cache: KvCache) -> None:
    sequence = computed(cache, A + B)
    twin = cache.fork(sequence)
    cache.rollback(twin, 10)
    extend(cache, twin, (A + B)[:22], [5] * 3)
    assert cache.match([*A, *B, 0]) == 32
    assert holds(cache, sequence, A + B)
    assert holds(cache, twin, (A + B)[:22] + [5] * 3)


def test_prefix_with_the_hash_of_another_is_not_taken_for_it(cache: KvCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix, "_chain_key", lambda parent, ids: bytes(16))
    first = computed(cache, A)
    second = computed(cache, B + C)
    assert (cache.match([*A, 0]), cache.match([*B, 0]), cache.prefixes.n_stored) == (16, 0, 1)
    assert holds(cache, second, B + C)
    assert cache.publish(second, B + C) == 0
    third = computed(cache, A + A)
    assert cache.match([*A, *A, 0]) == 16
    assert cache.blocks(third)[0] == cache.blocks(first)[0]
    for sequence in (first, second, third):
        cache.close_sequence(sequence)
    cache.prefixes.clear()
    assert cache.pool.n_free == 8


def test_prefix_keys_are_the_same_in_every_process() -> None:
    """They may name a prefix outside of this process: the bytes are part of the contract."""
    pool = BlockPool(2)
    store = PrefixStore(pool)
    one, two = pool.allocate(2)
    first = store.publish(None, full_block_ids(range(16))[0], one)
    assert first is not None
    second = store.publish(first, full_block_ids(range(16))[0], two)
    assert second is not None
    assert first.key.hex() == "eedd4ec522e47583caadbe52d0e12ad4"
    assert second.key.hex() == "eea48aef72b4e290d1b7c79c24fc9f8c"


def test_prefix_publishes_only_what_the_sequence_holds(cache: KvCache) -> None:
    sequence, _ = cache.open_with_prefix(A)
    with pytest.raises(CacheError, match="16 tokens cannot be published, sequence 0 has 0"):
        cache.publish(sequence, A)
    assert cache.prefixes.n_stored == 0


def test_prefix_refuses_other_tokens_for_a_published_block(cache: KvCache) -> None:
    sequence = cache.open()
    extend(cache, sequence, [], A)
    twin = cache.fork(sequence)
    cache.publish(sequence, A)
    with pytest.raises(CacheError, match="block 0 was published with other tokens"):
        cache.publish(twin, B)
    assert cache.publish(twin, A) == 1


@pytest.mark.parametrize("bad", [2**31, -(2**31) - 1, "x", None])
def test_prefix_refuses_ids_that_are_not_int32(cache: KvCache, bad: object) -> None:
    with pytest.raises(CacheError, match="token ids must be int32"):
        cache.match([bad] * 17)  # type: ignore[list-item]


def test_prefix_open_refuses_what_does_not_fit_and_changes_nothing(cache: KvCache) -> None:
    with pytest.raises(CacheFullError, match="a prompt of 65 tokens exceeds the context of 64"):
        cache.open_with_prefix([1] * 65)
    for _ in range(3):
        computed(cache, A)
    with pytest.raises(CacheFullError, match="all 3 sequences are in use"):
        cache.open_with_prefix([*A, 1])
    assert not cache.can_open_with_prefix([*A, 1])
    assert cache.counters.n_lookups == 3
    assert cache.prefixes.n_users(0) == 3


def test_prefix_store_refuses_a_negative_bound() -> None:
    with pytest.raises(CacheError, match="cannot keep -1 blocks"):
        PrefixStore(BlockPool(1), -1)
    with pytest.raises(CacheFullError, match="2 blocks are wanted, 1 of 1 are free"):
        PrefixStore(BlockPool(1)).allocate(2)


def test_prefix_store_tells_of_every_block_that_leaves_it(cache: KvCache) -> None:
    left: list[bytes] = []
    cache.prefixes.on_drop = lambda stored: left.append(stored.ids)
    sequence = computed(cache, A + B)
    cache.rollback(sequence, 1)
    extend(cache, sequence, (A + B)[:31], [0])
    assert left == full_block_ids(B)
    cache.close_sequence(sequence)
    cache.prefixes.clear()
    assert left == full_block_ids(B + A)


def test_prefix_of_a_very_long_chain_goes_without_recursion() -> None:
    pool = BlockPool(50_000)
    store = PrefixStore(pool)
    blocks = pool.allocate(50_000)
    parent = None
    for block, ids in zip(blocks, full_block_ids([0] * (16 * 50_000)), strict=True):
        parent = store.publish(parent, ids, block)
    assert len(store.find(full_block_ids([0] * (16 * 50_000)))) == 50_000
    store.release(blocks)
    del parent, store
    assert pool.n_free == 0


def test_prefix_that_was_evicted_meanwhile_is_not_opened(cache: KvCache) -> None:
    cache.close_sequence(computed(cache, A + B))
    found = cache.find([*A, *B, 0])
    cache.prefixes.clear()
    other = cache.open()
    cache.reserve(other, 64)
    with pytest.raises(CacheError, match="evicted since it was found: find it again"):
        cache.open_on(found)
    assert [cache.pool.count(stored.block) for stored in found] == [1, 1]
    assert cache.can_open()


def test_prefix_counts_are_not_changed_by_questions(cache: KvCache) -> None:
    cache.close_sequence(computed(cache, A + B))
    before = (repr(cache.counters), cache.prefixes.n_idle, cache.pool.n_free)
    cache.match([*A, 0])
    cache.find([*A, *B, 0])
    cache.can_open_with_prefix([*A, *B, 0])
    assert (repr(cache.counters), cache.prefixes.n_idle, cache.pool.n_free) == before
