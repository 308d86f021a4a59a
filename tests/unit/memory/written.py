"""A cache whose tokens are "computed": each leaves marks that depend on all tokens before it, as keys and values do."""

from __future__ import annotations

import ctypes
from itertools import accumulate
from typing import TYPE_CHECKING
from zlib import crc32

from emel.graph.ops import Heads
from emel.kernel.sizes import KV_BLOCK
from emel.memory.kv import KvCache

if TYPE_CHECKING:
    from collections.abc import Sequence

N_LAYERS = 2
HEADS = Heads(2, 2, 2)


def make_cache(
    n_ctx: int = 64, max_sequences: int = 3, n_blocks: int | None = None, prefix_bytes: int | None = None
) -> KvCache:
    return KvCache(
        n_kv_layers=N_LAYERS,
        heads=HEADS,
        n_ctx=n_ctx,
        max_sequences=max_sequences,
        n_blocks=n_blocks,
        prefix_bytes=prefix_bytes,
    )


def table_row(cache: KvCache, sequence: int, n: int) -> list[int]:
    """The first entries of a row of the block table as the native library reads it."""
    binding = cache.binding
    raw = (ctypes.c_int32 * (binding.n_rows * binding.stride)).from_address(binding.table_address)
    return list(raw[sequence * binding.stride : sequence * binding.stride + n])


def _heads(cache: KvCache, block: int) -> list[memoryview[int]]:
    """The numbers of a block, for each layer and head."""
    geometry = cache.geometry
    return [
        piece[start : start + geometry.head_bytes].cast("H")
        for piece in cache.storage.pieces([block])
        for start in range(0, geometry.block_bytes, geometry.head_bytes)
    ]


def _numbers(cache: KvCache, slot: int) -> list[int]:
    """Where a token's keys and values lie in a head."""
    values = (cache.geometry.values_at + slot * cache.geometry.value_bytes) // 2
    keys = [slot + dimension * KV_BLOCK for dimension in range(HEADS.head_dim)]
    return [*keys, *range(values, values + HEADS.head_dim)]


def marks(tokens: Sequence[int]) -> list[int]:
    """What each token leaves behind: a hash of it and all tokens before it."""
    states = accumulate(tokens, lambda state, token: crc32(token.to_bytes(4, "little"), state), initial=1)
    return [state & 0xFFFF for state in states][1:]


def write(cache: KvCache, sequence: int, tokens: Sequence[int], first: int) -> None:
    """Does what a plan run does for the tokens from position `first` on."""
    row = table_row(cache, sequence, -(-len(tokens) // KV_BLOCK))
    for position, mark in enumerate(marks(tokens)):
        if position >= first:
            for index, head in enumerate(_heads(cache, row[position // KV_BLOCK])):
                for number in _numbers(cache, position % KV_BLOCK):
                    head[number] = mark ^ index


def holds(cache: KvCache, sequence: int, tokens: Sequence[int]) -> bool:
    """Whether the sequence's keys and values, in all layers and heads, are those of these tokens."""
    expected = marks(tokens)
    row = table_row(cache, sequence, -(-len(tokens) // KV_BLOCK))
    for index, block in enumerate(row):
        here = expected[index * KV_BLOCK : (index + 1) * KV_BLOCK]
        for which, head in enumerate(_heads(cache, block)):
            numbers = head.tolist()
            for slot, mark in enumerate(here):
                if any(numbers[number] != mark ^ which for number in _numbers(cache, slot)):
                    return False
    return True


def extend(cache: KvCache, sequence: int, tokens: list[int], added: Sequence[int]) -> None:
    """Reserves and computes more tokens of a sequence that holds `tokens`, to which they are added."""
    first = cache.reserve(sequence, len(added))
    assert first == len(tokens)
    tokens.extend(added)
    write(cache, sequence, tokens, first)


def room(cache: KvCache, sequence: int) -> int:
    """The most tokens that can be reserved for a sequence; that any fewer can, too, and no more."""
    able = [cache.can_reserve_all([(sequence, n)]) for n in range(cache.n_ctx + 2)]
    assert able == sorted(able, reverse=True)
    return sum(able) - 1
