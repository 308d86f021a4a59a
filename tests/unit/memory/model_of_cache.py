"""A model of a KV cache: the tokens each sequence was given, and what must be true whatever was done with them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from emel.kernel.sizes import KV_BLOCK
from emel.memory.kv import KvCache, blocks_for
from unit.memory.written import holds, table_row, write

if TYPE_CHECKING:
    from collections.abc import Sequence


class CacheModel:
    """Drives a cache the way a scheduler does, and keeps the tokens of its sequences."""

    def __init__(self, cache: KvCache) -> None:
        self.cache = cache
        self.tokens: dict[int, list[int]] = {}
        self.private: set[int] = set()

    def open(self, prompt: Sequence[int], *, reuse: bool) -> None:
        """Opens a sequence on what is stored of a prompt."""
        n_matched = self.cache.match(prompt) if reuse else 0
        sequence, n_cached = self.cache.open_with_prefix(prompt, reuse=reuse)
        assert n_cached == n_matched < max(len(prompt), 1)
        assert n_cached % KV_BLOCK == 0
        self.tokens[sequence] = list(prompt[:n_cached])
        if not reuse:
            self.private.add(sequence)

    def extend_all(self, additions: dict[int, list[int]]) -> None:
        """One step: room for all of it, then all of it computed."""
        firsts = self.cache.reserve_all([(sequence, len(ids)) for sequence, ids in additions.items()])
        assert firsts == [len(self.tokens[sequence]) for sequence in additions]
        for (sequence, ids), first in zip(additions.items(), firsts, strict=True):
            write(self.cache, sequence, self.tokens[sequence] + ids, first)
        for sequence, ids in additions.items():
            self.tokens[sequence] += ids

    def fork(self, parent: int) -> None:
        """A twin of a sequence."""
        child = self.cache.fork(parent)
        self.tokens[child] = list(self.tokens[parent])
        if parent in self.private:
            self.private.add(child)

    def rollback(self, sequence: int, n: int) -> None:
        """Forgets the last tokens."""
        self.cache.rollback(sequence, n)
        del self.tokens[sequence][max(len(self.tokens[sequence]) - n, 0) :]

    def close(self, sequence: int) -> None:
        """Ends a sequence."""
        self.cache.close_sequence(sequence)
        self.forget(sequence)

    def forget(self, sequence: int) -> None:
        """Takes note that a sequence is closed."""
        self.tokens.pop(sequence, None)
        self.private.discard(sequence)

    def check(self) -> None:
        """Every invariant of the cache."""
        cache, store = self.cache, self.cache.prefixes
        blocks = {sequence: cache.blocks(sequence) for sequence in self.tokens}
        for sequence, tokens in self.tokens.items():
            assert cache.n_tokens(sequence) == len(tokens) <= cache.n_ctx
            assert len(blocks[sequence]) == blocks_for(len(tokens))
            assert table_row(cache, sequence, len(blocks[sequence])) == list(blocks[sequence])
            assert holds(cache, sequence, tokens), f"sequence {sequence} lost what was computed"
        users = Counter(block for each in blocks.values() for block in each)
        stored = store.blocks()
        assert len(stored) == len(set(stored)) == store.n_stored
        owners = users + Counter(stored)
        assert [cache.pool.count(block) for block in range(cache.n_blocks)] == [
            owners[block] for block in range(cache.n_blocks)
        ]
        assert cache.pool.n_free == cache.n_blocks - len(owners), "blocks leaked"
        assert store.n_idle == len(set(stored) - set(users)), "a stored block nobody uses is not idle"
        assert cache.free_blocks() == cache.n_blocks - len(users)
        assert cache.n_blocks_in_use == len(users)

    def check_chains(self) -> None:
        """Whoever owns a stored block owns those before it."""
        store = self.cache.prefixes
        for sequence in self.tokens:
            chain = [store.stored(block) for block in self.cache.blocks(sequence)]
            for before, after in zip([None, *chain], chain, strict=False):
                assert after is None or after.parent is before
        for block in store.blocks():
            stored = store.stored(block)
            assert stored is not None
            assert stored.parent is None or store.stored(stored.parent.block) is stored.parent, "stranded"

    def end(self) -> None:
        """Closes everything; nothing may be left."""
        for sequence in [*self.tokens]:
            self.close(sequence)
        self.check()
        self.cache.prefixes.clear()
        assert (self.cache.pool.n_free, self.cache.prefixes.n_stored) == (self.cache.n_blocks, 0)
