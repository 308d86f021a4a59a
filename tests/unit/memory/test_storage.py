"""The bytes of blocks: sizes as the native library has them, copies of exactly one block, no left-overs of others."""

from __future__ import annotations

import random

import pytest

from emel.kernel.sizes import KV_BLOCK, KV_TYPES, kv_bytes
from emel.memory.storage import KvGeometry, KvStorage
from emel.tensor.types import TensorType


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("head_dim", [1, 2, 3, 15, 16, 17, 32, 33, 64, 65, 80, 96, 128, 256, 512])
@pytest.mark.parametrize(("n_layers", "n_heads", "n_blocks"), [(1, 1, 1), (2, 3, 5)])
def test_geometry_is_the_native_one(
    n_layers: int, n_heads: int, n_blocks: int, head_dim: int, kv_type: TensorType
) -> None:
    geometry = KvGeometry(n_layers, n_heads, head_dim, kv_type)
    assert geometry.bytes_per_block * n_blocks == kv_bytes(n_layers, n_blocks, n_heads, head_dim, kv_type)


def filled(
    n_layers: int = 3, n_heads: int = 2, head_dim: int = 3, n_blocks: int = 5, kv_type: TensorType = TensorType.F16
) -> KvStorage:
    storage = KvStorage(KvGeometry(n_layers, n_heads, head_dim, kv_type), n_blocks)
    for piece in storage.pieces(range(n_blocks)):
        piece[:] = random.Random(len(piece)).randbytes(len(piece))
    return storage


def content(storage: KvStorage, block: int) -> bytes:
    return b"".join(storage.pieces([block]))


@pytest.mark.parametrize(("source", "target"), [(0, 4), (4, 0), (2, 3), (1, 1)])
def test_copy_block_copies_all_layers_of_one_block(source: int, target: int) -> None:
    storage = filled()
    before = [content(storage, block) for block in range(5)]
    storage.copy_block(source, target)
    expected = before.copy()
    expected[target] = before[source]
    assert [content(storage, block) for block in range(5)] == expected
    storage.close()


@pytest.mark.parametrize(
    ("blocks", "n_pieces"), [([], 0), ([0, 1, 2], 1), ([2, 1, 0], 3), ([0, 1, 3, 4], 2), ([4, 0, 1], 2)]
)
def test_pieces_join_neighbours_and_keep_the_order(blocks: list[int], n_pieces: int) -> None:
    storage = filled(n_layers=1)
    pieces = list(storage.pieces(blocks))
    assert len(pieces) == n_pieces
    assert b"".join(pieces) == b"".join(content(storage, block) for block in blocks)
    del pieces
    storage.close()


@pytest.mark.parametrize(("kv_type", "n_bytes"), [(TensorType.F16, 2), (TensorType.F32, 4)])
@pytest.mark.parametrize("head_dim", [3, 16, 20])
@pytest.mark.parametrize("n_kept", [0, 1, 7, 15, 16])
def test_forget_slots_leaves_the_first_tokens_alone(
    head_dim: int, n_kept: int, kv_type: TensorType, n_bytes: int
) -> None:
    storage = filled(head_dim=head_dim, kv_type=kv_type)
    geometry = storage.geometry
    before = [content(storage, block) for block in range(5)]
    expected = bytearray(before[2])
    for head in range(0, geometry.bytes_per_block, geometry.head_bytes):
        for slot in range(n_kept, KV_BLOCK):
            for dimension in range(head_dim):
                key = head + n_bytes * (dimension * KV_BLOCK + slot)
                expected[key : key + n_bytes] = bytes(n_bytes)
            value = head + geometry.values_at + slot * geometry.value_bytes
            expected[value : value + geometry.value_bytes] = bytes(geometry.value_bytes)
    storage.forget_slots(2, n_kept)
    before[2] = bytes(expected)
    assert [content(storage, block) for block in range(5)] == before
    storage.close()


def q8_slot_bytes(geometry: KvGeometry, slot: int) -> set[int]:
    """Where in a head of a Q8_0 block the numbers and scales of a token's key and value lie."""
    places = set()
    for d in range(geometry.n_parts * 32):
        unit, part = d // 64 * 1088, d // 32
        places |= {unit + part % 2 * 32 + slot * 2 + byte for byte in range(2)}
        places.add(unit + 64 + part % 2 * 512 + d % 32 // 4 * 64 + slot * 4 + d % 4)
        places |= {geometry.values_at + part * 32 + slot * 2 + byte for byte in range(2)}
    values = geometry.values_at + geometry.scale_bytes + slot * geometry.value_bytes
    return places | set(range(values, values + geometry.value_bytes))


@pytest.mark.parametrize("head_dim", [3, 40, 64, 80])
@pytest.mark.parametrize("n_kept", [0, 1, 15, 16])
def test_forget_slots_of_q8_leaves_the_first_tokens_alone(head_dim: int, n_kept: int) -> None:
    storage = filled(head_dim=head_dim, kv_type=TensorType.Q8_0)
    geometry = storage.geometry
    before = [content(storage, block) for block in range(5)]
    forgotten = set().union(*(q8_slot_bytes(geometry, slot) for slot in range(n_kept, KV_BLOCK)))
    kept = set().union(*(q8_slot_bytes(geometry, slot) for slot in range(n_kept)))
    assert not forgotten & kept
    storage.forget_slots(2, n_kept)
    after = content(storage, 2)
    for head in range(0, geometry.bytes_per_block, geometry.head_bytes):
        assert not any(after[head + place] for place in forgotten)
        assert all(after[head + place] == before[2][head + place] for place in kept)
    assert [content(storage, block) for block in (0, 1, 3, 4)] == [before[block] for block in (0, 1, 3, 4)]
    storage.close()


def test_storage_that_is_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match="the native library has no size for a KV cache of 1 layers"):
        KvStorage(KvGeometry(1, 2**20, 2**20), 2**20)


def test_storage_can_be_closed_twice() -> None:
    storage = filled()
    storage.close()
    storage.close()
    assert storage.address == 0
