"""Invariant: blocks and state of a sequence are of the same tokens, whatever fails; checkpoints never leak."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from emel.graph.state_ops import STATE_REACH, StateGeometry
from emel.memory.errors import CacheError, CacheFullError
from emel.memory.hybrid import HybridCache
from emel.memory.recurrent import RecurrentSlots
from unit.memory.written import holds, make_cache, marks, write

if TYPE_CHECKING:
    from collections.abc import Iterator

A, B = [1] * 16, [2] * 16
GEOMETRY = StateGeometry(n_layers=1, width=1, n_past=2)


def make(n_slots: int = 4, max_sequences: int = 2, n_blocks: int = 8) -> HybridCache:
    kv = make_cache(n_ctx=64, max_sequences=max_sequences, n_blocks=n_blocks)
    return HybridCache(kv, RecurrentSlots(n_slots, GEOMETRY))


@pytest.fixture
def cache() -> Iterator[HybridCache]:
    cache = make()
    yield cache
    cache.close()


def state_of(tokens: list[int], first: int) -> list[bytes]:
    """Products from the token `first` on: the mark of each."""
    return [mark.to_bytes(4, "little") for mark in marks(tokens)[first:]]


def extend(cache: HybridCache, sequence: int, tokens: list[int], added: list[int]) -> list[int]:
    """Reserves and computes more tokens; all of them."""
    assert cache.reserve_all([(sequence, len(added))]) == [len(tokens)]
    everything = [*tokens, *added]
    write(cache.kv, sequence, everything, len(tokens))
    pieces = cache.slots.pieces(cache.slot(sequence), len(tokens))
    for piece, product in zip(pieces, state_of(everything, len(tokens)), strict=True):
        piece[:] = product
    return everything


def agrees(cache: HybridCache, sequence: int, tokens: list[int]) -> bool:
    slot = cache.slot(sequence)
    n = len(tokens)
    first = max(n - GEOMETRY.n_past, 0)
    return (
        cache.kv.n_tokens(sequence) == cache.slots.n_tokens(slot) == n
        and [bytes(piece) for piece in cache.slots.pieces(slot, first)] == state_of(tokens, first)
        and holds(cache.kv, sequence, tokens)
    )


def test_hybrid_reuses_a_prefix_up_to_its_last_checkpoint(cache: HybridCache) -> None:
    sequence = cache.open()
    extend(cache, sequence, [], A)
    cache.publish(sequence, A)
    cache.checkpoint(sequence)
    extend(cache, sequence, A, [*B, *[5] * 17])
    cache.publish(sequence, [*A, *B])  # too far back for a checkpoint
    assert (cache.kv.match([*A, *B, 5]), cache.match([*A, *B, 5])) == (32, 16)
    other, n_cached = cache.open_with_prefix([*A, *B, 5])
    assert (n_cached, agrees(cache, other, A)) == (16, True)
    counters = cache.kv.counters
    assert (counters.n_lookups, counters.n_hits, counters.n_tokens_reused) == (1, 1, 16)
    cache.close_sequence(other)
    private, n_cached = cache.open_with_prefix([*A, *B, 5], reuse=False)
    assert (n_cached, agrees(cache, private, []), counters.n_lookups) == (0, True, 1)


def test_hybrid_forks_blocks_and_state(cache: HybridCache) -> None:
    parent = cache.open()
    tokens = extend(cache, parent, [], list(range(20)))
    child = cache.fork(parent)
    child_tokens = extend(cache, child, tokens, [7])
    tokens = extend(cache, parent, tokens, [8])
    assert agrees(cache, parent, tokens)
    assert agrees(cache, child, child_tokens)
    with pytest.raises(CacheFullError, match="all 2 sequences are in use"):
        cache.fork(parent)
    assert cache.slots.n_free == 2


def test_hybrid_rolls_back_to_checkpoints_and_to_the_start(cache: HybridCache) -> None:
    sequence = cache.open()
    extend(cache, sequence, [], A)
    cache.publish(sequence, A)
    cache.checkpoint(sequence)
    tokens = extend(cache, sequence, A, [*B, *B[:7]])
    assert [cache.can_rollback(sequence, n) for n in (-1, 0, STATE_REACH, STATE_REACH + 1, 22, 23, 24, 39, 50)] == [
        False, True, True, False, False, True, False, True, True,
    ]  # fmt: skip
    with pytest.raises(CacheError, match="sequence 0 has no checkpoint at 17 tokens, which are out of reach"):
        cache.rollback(sequence, 22)
    assert agrees(cache, sequence, tokens)
    cache.rollback(sequence, 0)
    assert agrees(cache, sequence, tokens)
    cache.rollback(sequence, 3)
    tokens = tokens[:-3]
    assert agrees(cache, sequence, tokens)
    cache.rollback(sequence, 20)
    assert agrees(cache, sequence, A)
    extend(cache, sequence, A, [3])
    cache.rollback(sequence, 17)
    assert agrees(cache, sequence, [])


def test_hybrid_keeps_the_state_of_a_border_that_the_sequence_is_past(cache: HybridCache) -> None:
    """Also when the tokens behind it are guesses that go again."""
    sequence = cache.open()
    tokens = extend(cache, sequence, [], [*A, *B, 3, 4])
    assert cache.publish(sequence, tokens[:16]) == 1
    assert cache.match([*A, *B, 9]) == 0  # 18 tokens back
    assert cache.publish(sequence, tokens) == 1
    other, n_cached = cache.open_with_prefix([*A, *B, 9])
    assert (n_cached, agrees(cache, other, [*A, *B])) == (32, True)
    cache.close_sequence(other)
    cache.rollback(sequence, 2)
    tokens = extend(cache, sequence, [*A, *B], [9] * 15)
    assert agrees(cache, sequence, tokens)
    assert cache.can_rollback(sequence, 15)


def test_hybrid_refuses_a_checkpoint_elsewhere(cache: HybridCache) -> None:
    sequence = cache.open()
    for tokens in ([], A, [*A, 1], [*A, *B]):
        cache.rollback(sequence, 64)
        extend(cache, sequence, [], tokens)
        assert not cache.can_checkpoint(sequence)
        with pytest.raises(CacheError, match=f"has {len(tokens)} tokens: a checkpoint needs a published full block"):
            cache.checkpoint(sequence)
    assert (len(cache._checkpoints), cache.slots.n_free) == (0, 3)


def test_hybrid_checkpoint_leaves_with_its_block(cache: HybridCache) -> None:
    sequence = cache.open()
    extend(cache, sequence, [], A)
    cache.publish(sequence, A)
    cache.checkpoint(sequence)
    cache.checkpoint(sequence)
    cache.close_sequence(sequence)
    assert (len(cache._checkpoints), cache.slots.n_free) == (1, 3)
    cache.kv.prefixes.clear()
    assert (len(cache._checkpoints), cache.slots.n_free) == (0, 4)


def test_hybrid_sequences_take_the_oldest_checkpoints_slot() -> None:
    cache = make(n_slots=2)
    sequence = cache.open()
    extend(cache, sequence, [], A)
    cache.publish(sequence, A)
    cache.checkpoint(sequence)
    assert cache.match([*A, 0]) == 16
    # The only slot to be had is the checkpoint's own.
    other, n_cached = cache.open_with_prefix([*A, 0])
    assert (n_cached, agrees(cache, other, A), len(cache._checkpoints)) == (16, True, 0)
    assert not cache.can_checkpoint(sequence)
    with pytest.raises(CacheFullError, match="all 2 recurrent states are in use by sequences"):
        cache.checkpoint(sequence)
    cache.close_sequence(other)
    cache.checkpoint(sequence)
    third = cache.open()
    assert (agrees(cache, third, []), len(cache._checkpoints), cache.match([*A, 0])) == (True, 0, 0)
    cache.close()


def test_hybrid_needs_a_slot_for_each_sequence() -> None:
    kv, slots = make_cache(max_sequences=3), RecurrentSlots(2, GEOMETRY)
    with pytest.raises(CacheError, match="2 recurrent states are too few for 3 sequences"):
        HybridCache(kv, slots)
    kv.close()
    slots.close()


def test_hybrid_reserves_both_or_neither(cache: HybridCache) -> None:
    one, two = cache.open(), cache.open()
    for refused in ([(one, 65)], [(one, 60), (two, 65)], [(one, 1), (one, 1)], [(one, 1), (two, -1)]):
        with pytest.raises(CacheError):
            cache.reserve_all(refused)
        assert agrees(cache, one, [])
        assert agrees(cache, two, [])
    with pytest.raises(CacheError, match="sequence 5 is not open"):
        cache.reserve_all([(one, 1), (5, 1)])
    assert agrees(cache, one, [])
    assert not cache.can_reserve_all([(one, 65)])


@pytest.mark.parametrize("operation", ["open", "fork"])
def test_hybrid_gives_blocks_back_when_the_state_fails(
    cache: HybridCache, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    parent = cache.open()
    tokens = extend(cache, parent, [], list(range(20)))

    def fail(*_: object) -> int:
        raise MemoryError("no state")

    monkeypatch.setattr(RecurrentSlots, operation, fail)
    with pytest.raises(MemoryError, match="no state"):
        cache.open() if operation == "open" else cache.fork(parent)
    assert cache.kv.can_open()
    assert cache.kv.n_blocks_in_use == 2
    assert agrees(cache, parent, tokens)


class Hybrids(RuleBasedStateMachine):
    """Three sequences, five slots, nine blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = make(n_slots=5, max_sequences=3, n_blocks=9)
        self.tokens: dict[int, list[int]] = {}

    def teardown(self) -> None:
        for sequence in self.tokens:
            self.cache.close_sequence(sequence)
        self.cache.kv.prefixes.clear()
        assert (self.cache.slots.n_free, len(self.cache._checkpoints), self.cache.kv.pool.n_free) == (5, 0, 9)
        self.cache.close()

    @precondition(lambda self: self.cache.can_open())
    @rule(prompt=st.sampled_from([[], [*A, 3], [*A, *B, 3], [*B, 3], [*A, *A, 3]]), reuse=st.booleans())
    def open(self, prompt: list[int], reuse: bool) -> None:
        n_matched = self.cache.match(prompt)
        sequence, n_cached = self.cache.open_with_prefix(prompt, reuse=reuse)
        assert n_cached == (n_matched if reuse else 0)
        self.tokens[sequence] = prompt[:n_cached]

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), added=st.sampled_from([A, B, [3], A + B]))
    def extend(self, data: st.DataObject, added: list[int]) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.tokens)))
        if self.cache.can_reserve_all([(sequence, len(added))]):
            self.tokens[sequence] = extend(self.cache, sequence, self.tokens[sequence], added)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def publish_and_checkpoint(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.tokens)))
        self.cache.publish(sequence, self.tokens[sequence])
        if self.cache.can_checkpoint(sequence):
            self.cache.checkpoint(sequence)
            assert self.cache.match([*self.tokens[sequence], 0]) == len(self.tokens[sequence]) // 16 * 16

    @precondition(lambda self: self.tokens and self.cache.can_open())
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        parent = data.draw(st.sampled_from(sorted(self.tokens)))
        self.tokens[self.cache.fork(parent)] = self.tokens[parent].copy()

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), n=st.sampled_from([0, 1, 7, 16, 17, 40, 64]))
    def rollback(self, data: st.DataObject, n: int) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.tokens)))
        if self.cache.can_rollback(sequence, n):
            self.cache.rollback(sequence, n)
            del self.tokens[sequence][max(len(self.tokens[sequence]) - n, 0) :]

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.tokens)))
        self.cache.close_sequence(sequence)
        del self.tokens[sequence]

    @invariant()
    def blocks_and_states_agree(self) -> None:
        for sequence, tokens in self.tokens.items():
            assert agrees(self.cache, sequence, tokens)
        assert self.cache.slots.n_free == 5 - len(self.tokens) - len(self.cache._checkpoints)


TestHybrids = Hybrids.TestCase
TestHybrids.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
