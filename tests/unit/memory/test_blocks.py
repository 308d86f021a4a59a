"""Invariant: every block is owned exactly as often as its count says, and free exactly when that is never."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from emel.memory.blocks import BlockPool
from emel.memory.errors import CacheError, CacheFullError


def test_pool_hands_out_ascending_ids_and_the_last_freed_first() -> None:
    pool = BlockPool(5)
    assert pool.allocate(3) == [0, 1, 2]
    pool.release([1])
    pool.release([0])
    assert pool.allocate(3) == [0, 1, 3]


def test_pool_frees_a_sequence_so_that_it_comes_back_in_order() -> None:
    pool = BlockPool(6)
    blocks = pool.allocate(4)
    pool.release(blocks)
    assert pool.allocate(6) == [0, 1, 2, 3, 4, 5]


def test_pool_allocates_all_or_nothing() -> None:
    pool = BlockPool(3)
    pool.allocate(2)
    assert not pool.can_allocate(2)
    with pytest.raises(CacheFullError, match="2 blocks are wanted, 1 of 3 are free"):
        pool.allocate(2)
    assert pool.n_free == 1
    assert pool.allocate(1) == [2]
    assert pool.allocate(0) == []


def test_pool_keeps_a_shared_block_until_its_last_owner_is_gone() -> None:
    pool = BlockPool(2)
    blocks = pool.allocate(1)
    pool.retain(blocks)
    pool.release(blocks)
    assert (pool.count(0), pool.n_free) == (1, 1)
    pool.release(blocks)
    assert (pool.count(0), pool.n_free) == (0, 2)


@pytest.mark.parametrize("block", [-1, 2])
def test_pool_refuses_blocks_it_does_not_have(block: int) -> None:
    pool = BlockPool(2)
    pool.allocate(2)
    for change in (pool.retain, pool.release):
        with pytest.raises(CacheError, match=f"block {block} does not exist: this pool has 0 to 1"):
            change([0, block])
    assert pool.count(0) == 1


def test_pool_refuses_free_blocks_and_changes_nothing() -> None:
    pool = BlockPool(3)
    pool.allocate(1)
    with pytest.raises(CacheError, match="block 1 is free: it cannot get another owner"):
        pool.retain([0, 1])
    with pytest.raises(CacheError, match="block 1 has 0 owners: it cannot lose 1"):
        pool.release([0, 1])
    with pytest.raises(CacheError, match="block 0 has 1 owners: it cannot lose 2"):
        pool.release([0, 0])
    assert (pool.count(0), pool.n_free) == (1, 2)


def test_pool_of_nothing_is_refused() -> None:
    with pytest.raises(CacheError, match="a pool of 0 blocks holds nothing"):
        BlockPool(0)
    assert not BlockPool(1).can_allocate(-1)


class Owners(RuleBasedStateMachine):
    """Owners that hold lists of blocks, against the pool's counts."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(7)
        self.owned: list[list[int]] = []

    @rule(n=st.integers(0, 9))
    def allocate(self, n: int) -> None:
        before = self.pool.n_free
        if self.pool.can_allocate(n):
            blocks = self.pool.allocate(n)
            assert len(set(blocks)) == n
            assert not {block for owner in self.owned for block in owner} & set(blocks)
            self.owned.append(blocks)
        else:
            with pytest.raises(CacheFullError):
                self.pool.allocate(n)
            assert self.pool.n_free == before

    @precondition(lambda self: self.owned)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        blocks = list(data.draw(st.sampled_from(self.owned)))
        self.pool.retain(blocks)
        self.owned.append(blocks)

    @precondition(lambda self: self.owned)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        blocks = self.owned.pop(data.draw(st.integers(0, len(self.owned) - 1)))
        self.pool.release(blocks)

    @invariant()
    def counts_are_owners(self) -> None:
        counts = Counter(block for owner in self.owned for block in owner)
        assert [self.pool.count(block) for block in range(7)] == [counts[block] for block in range(7)]
        assert self.pool.n_free == sum(1 for block in range(7) if not counts[block])


TestOwners = Owners.TestCase
