"""Invariant: whatever sequences share, each reads what was computed for its own tokens, and no block is lost or owned
more often than counted.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from emel.memory.errors import CacheFullError
from unit.memory.model_of_cache import CacheModel
from unit.memory.written import make_cache, room

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

N_CTX, MAX_SEQUENCES, N_BLOCKS = 70, 4, 11

# Two different blocks of tokens in any order give many equal and some different prefixes.
PROMPTS = st.lists(st.sampled_from([1, 2]), max_size=4).map(
    lambda kinds: [token for kind in kinds for token in range(kind * 100, kind * 100 + 16)]
)
TOKENS = st.lists(st.sampled_from([7, 8]), max_size=20)


class Sequences(RuleBasedStateMachine):
    """Four sequences compete for eleven blocks, and at most three idle ones are kept for prefixes."""

    def __init__(self) -> None:
        super().__init__()
        cache = make_cache(N_CTX, MAX_SEQUENCES, N_BLOCKS)
        cache.prefixes.max_idle = 3
        self.model = CacheModel(cache)
        self.cache = cache

    def teardown(self) -> None:
        self.model.end()
        self.cache.close()

    @rule(prompt=PROMPTS, extra=TOKENS, reuse=st.booleans())
    def open(self, prompt: list[int], extra: list[int], reuse: bool) -> None:
        ids = (prompt + extra)[:N_CTX]
        can_open = self.cache.can_open_with_prefix(ids, reuse=reuse)
        if not self.cache.can_open():
            assert not can_open
            with pytest.raises(CacheFullError, match="all 4 sequences are in use"):
                self.model.open(ids, reuse=reuse)
            return
        self.model.open(ids, reuse=reuse)
        sequence = [*self.model.tokens][-1]
        rest = ids[len(self.model.tokens[sequence]) :]
        assert self.cache.can_reserve_all([(sequence, len(rest))]) == can_open
        if can_open:
            self.model.extend_all({sequence: rest})
        else:
            self.model.close(sequence)

    @precondition(lambda self: self.model.tokens)
    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.model.tokens)), unique=True))
        additions = {sequence: data.draw(TOKENS) for sequence in chosen}
        pairs = [(sequence, len(ids)) for sequence, ids in additions.items()]
        n_free, can_reserve = self.cache.free_blocks(), self.cache.can_reserve_all(pairs)
        n_needed = self.cache.blocks_needed(pairs)
        if can_reserve:
            self.model.extend_all(additions)
            assert self.cache.free_blocks() == n_free - n_needed
        else:
            with pytest.raises(CacheFullError):
                self.cache.reserve_all(pairs)
            assert self.cache.free_blocks() == n_free

    @precondition(lambda self: self.model.tokens)
    @rule(data=st.data(), n=st.integers(0, 40))
    def rollback(self, data: st.DataObject, n: int) -> None:
        self.model.rollback(data.draw(st.sampled_from(sorted(self.model.tokens))), n)

    @precondition(lambda self: self.model.tokens and self.cache.can_open())
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        parent = data.draw(st.sampled_from(sorted(self.model.tokens)))
        n_free = self.cache.free_blocks()
        self.model.fork(parent)
        assert self.cache.free_blocks() == n_free

    @precondition(lambda self: self.model.tokens)
    @rule(data=st.data())
    def publish(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.model.tokens)))
        ids = self.model.tokens[sequence]
        self.cache.publish(sequence, ids)
        if sequence not in self.model.private:
            assert self.cache.match([*ids, 0]) >= len(ids) // 16 * 16
        assert self.cache.publish(sequence, ids) == 0

    @precondition(lambda self: self.model.tokens)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.model.tokens)))
        n_back = sum(self.cache.prefixes.n_users(block) == 1 for block in self.cache.blocks(sequence))
        n_free = self.cache.free_blocks()
        self.model.close(sequence)
        assert self.cache.free_blocks() == n_free + n_back

    @invariant()
    def nothing_is_lost_or_mixed_up(self) -> None:
        self.model.check()
        self.model.check_chains()
        assert self.cache.prefixes.n_idle <= 3


TestSequences = Sequences.TestCase
TestSequences.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def random_prompt(draw: random.Random) -> list[int]:
    """Up to three blocks of two kinds, so that prompts often begin alike."""
    return [token for _ in range(draw.randrange(4)) for token in [draw.randrange(2)] * 16]


def random_step(model: CacheModel, draw: random.Random) -> None:
    """One thing a scheduler may do."""
    cache = model.cache
    sequence = draw.choice([*model.tokens]) if model.tokens else None
    kind = draw.randrange(9)
    if sequence is None or (kind == 0 and cache.can_open()):
        model.open([*random_prompt(draw), 9], reuse=draw.random() < 0.9)
    elif kind < 4:
        n_chosen = draw.randrange(len(model.tokens) + 1)
        additions = {each: random_prompt(draw)[draw.randrange(16) :] for each in draw.sample([*model.tokens], n_chosen)}
        pairs = [(each, len(ids)) for each, ids in additions.items()]
        if cache.can_reserve_all(pairs):
            n_left = cache.free_blocks() - cache.blocks_needed(pairs)
            model.extend_all(additions)
            assert cache.free_blocks() == n_left
    elif kind == 4 and cache.can_open():
        model.fork(sequence)
    elif kind == 5:
        model.rollback(sequence, draw.randrange(20))
    elif kind < 8:
        cache.publish(sequence, model.tokens[sequence])
    elif len(model.tokens) > 2:
        model.close(sequence)


@pytest.mark.parametrize("max_idle", [None, 0, 2])
def test_cache_keeps_its_promises_in_long_random_runs(max_idle: int | None) -> None:
    draw = random.Random(max_idle)
    cache = make_cache(N_CTX, MAX_SEQUENCES, N_BLOCKS)
    cache.prefixes.max_idle = max_idle
    model = CacheModel(cache)
    for _ in range(1000):
        random_step(model, draw)
        model.check()
        model.check_chains()
        assert max_idle is None or cache.prefixes.n_idle <= max_idle
    counters = cache.counters
    assert 0 < counters.n_hits < counters.n_lookups
    assert counters.n_evicted <= counters.n_published
    model.end()
    cache.close()


def prepared() -> CacheModel:
    """Three sequences: 0 and 1 share two published blocks and a partial one, 2 has the same tokens in its own blocks.

    Two more chains are idle, and three blocks are free.
    """
    model = CacheModel(make_cache(N_CTX, MAX_SEQUENCES, 12))
    kinds = {kind: [kind] * 16 for kind in range(1, 4)}
    for first in (2, 3):
        model.open([first], reuse=True)
        model.extend_all({0: [*kinds[first], 0]})
        model.cache.publish(0, model.tokens[0])
        model.close(0)
    model.open([0], reuse=True)
    model.extend_all({0: [*kinds[1], *kinds[2], 5]})
    model.fork(0)
    model.open([0], reuse=False)
    model.extend_all({2: [*kinds[1], *kinds[2], 5]})
    model.close(2)
    model.open([0], reuse=True)
    model.extend_all({2: [*kinds[1], *kinds[2], 5]})
    model.cache.publish(0, model.tokens[0])
    return model


def in_turn(*changes: Callable[[CacheModel], object]) -> Callable[[CacheModel], object]:
    """One change after the other."""
    return lambda model: [change(model) for change in changes]


CHANGES: Mapping[str, Callable[[CacheModel], object]] = {
    "copy a shared tail": lambda model: model.extend_all({0: [6]}),
    "grow past what is free": in_turn(
        lambda model: model.cache.reserve_all([(0, 30), (1, 20)]),
        lambda model: model.cache.rollback(0, 30),
        lambda model: model.cache.rollback(1, 20),
    ),
    "publish what is stored": lambda model: model.cache.publish(2, model.tokens[2]),
    "publish what a twin published": lambda model: model.cache.publish(1, model.tokens[1]),
    "fork": lambda model: model.fork(0),
    "open on a prefix": lambda model: model.open([*[2] * 16, 1], reuse=True),
    "roll back into a shared block": in_turn(
        lambda model: model.rollback(0, 10), lambda model: model.extend_all({0: [8]})
    ),
    "roll back to nothing": lambda model: model.rollback(1, 100),
    "close": lambda model: model.close(0),
    "close the last user of a chain": in_turn(*(partial(CacheModel.close, sequence=each) for each in (2, 1, 0))),
    "write a published block": in_turn(
        lambda model: model.close(1),
        lambda model: model.rollback(0, 20),
        lambda model: model.extend_all({0: [9]}),
        lambda model: model.cache.publish(0, model.tokens[0]),
    ),
    "evict": lambda model: model.cache.prefixes.clear(),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_cache_goes_on_as_usual_after_a_change(name: str) -> None:
    model = prepared()
    CHANGES[name](model)
    model.check()
    model.check_chains()
    for sequence in [*model.tokens]:
        model.extend_all({sequence: [3] * min(18, room(model.cache, sequence))})
        model.cache.publish(sequence, model.tokens[sequence])
        model.check()
    for sequence in [*model.tokens]:
        model.rollback(sequence, 17)
        model.close(sequence)
        model.check()
    while model.cache.prefixes.n_idle:
        model.cache.pool.release(model.cache.prefixes.allocate(model.cache.pool.n_free + 1))
        model.check()
        model.check_chains()
    model.end()
    model.cache.close()
