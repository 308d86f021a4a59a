"""Invariant: a restored sequence is the saved one, bit for bit; any other file is refused and changes nothing."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emel.graph.ops import Heads
from emel.memory.errors import CacheError, CacheFullError, SavedSequenceError
from emel.memory.kv import KvCache
from emel.memory.saved import Origin, restore_sequence, save_sequence
from unit.memory.written import extend, holds, make_cache

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ORIGIN = Origin(bytes(range(32)), 1)


@pytest.fixture
def cache() -> Iterator[KvCache]:
    cache = make_cache(n_ctx=64, max_sequences=3)
    yield cache
    cache.close()


def computed(cache: KvCache, n_tokens: int) -> tuple[int, list[int]]:
    sequence = cache.open()
    tokens: list[int] = []
    extend(cache, sequence, tokens, [7 * i for i in range(n_tokens)])
    return sequence, tokens


@pytest.mark.parametrize("n_tokens", [0, 1, 15, 16, 17, 32, 50, 64])
def test_saved_sequence_is_restored_bit_for_bit(cache: KvCache, tmp_path: Path, n_tokens: int) -> None:
    sequence, tokens = computed(cache, n_tokens)
    save_sequence(cache, sequence, tokens, tmp_path / "s", ORIGIN)
    other = make_cache(n_ctx=80, max_sequences=2)
    other.reserve(other.open(), 17)
    restored, ids = restore_sequence(other, tmp_path / "s", ORIGIN)
    assert (restored, ids, other.n_tokens(restored)) == (1, tokens, n_tokens)
    assert holds(other, restored, tokens)
    other.close()


def test_saved_file_depends_on_the_tokens_alone(cache: KvCache, tmp_path: Path) -> None:
    """Neither on where the blocks lie nor on what others left in them."""
    first, tokens = computed(cache, 50)
    save_sequence(cache, first, tokens, tmp_path / "first", ORIGIN)
    used = make_cache(n_ctx=64, max_sequences=3)
    for sequence in [computed(used, 64)[0] for _ in range(3)]:
        used.close_sequence(sequence)
    one, two = used.open(), used.open()
    held: list[int] = []
    for start in range(0, 50, 10):
        used.reserve(one, 10)
        extend(used, two, held, tokens[start : start + 10])
    assert used.blocks(two) != cache.blocks(first)
    save_sequence(used, two, held, tmp_path / "second", ORIGIN)
    assert (tmp_path / "second").read_bytes() == (tmp_path / "first").read_bytes()
    used.close()


def test_saving_replaces_the_file_at_once_for_the_owner_only(cache: KvCache, tmp_path: Path) -> None:
    sequence, tokens = computed(cache, 20)
    path = tmp_path / "s"
    path.write_bytes(b"old")
    save_sequence(cache, sequence, tokens, path, ORIGIN)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["s"]


def test_saving_that_fails_leaves_the_old_file_and_nothing_else(
    cache: KvCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sequence, tokens = computed(cache, 20)
    path = tmp_path / "s"
    path.write_bytes(b"old")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        save_sequence(cache, sequence, tokens, path, ORIGIN)
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (b"old", [path])
    with pytest.raises(FileNotFoundError):
        save_sequence(cache, sequence, tokens, tmp_path / "none" / "s", ORIGIN)


@pytest.mark.parametrize(
    ("origin", "message"),
    [
        (Origin(bytes(32), 1), "another model computed it, or other activations or a longer context: load as it was"),
        (Origin(bytes(range(32)), 2), "numerics version 1 computed it, this is 2: compute it again"),
    ],
)
def test_restoring_refuses_another_origin(cache: KvCache, tmp_path: Path, origin: Origin, message: str) -> None:
    sequence, tokens = computed(cache, 20)
    save_sequence(cache, sequence, tokens, tmp_path / "s", ORIGIN)
    with pytest.raises(SavedSequenceError, match=f"^cannot restore .*/s: {message}"):
        restore_sequence(cache, tmp_path / "s", origin)


@pytest.mark.parametrize(("n_layers", "heads"), [(3, Heads(2, 2, 2)), (2, Heads(2, 1, 2)), (2, Heads(2, 2, 4))])
def test_restoring_refuses_another_geometry(cache: KvCache, tmp_path: Path, n_layers: int, heads: Heads) -> None:
    sequence, tokens = computed(cache, 20)
    save_sequence(cache, sequence, tokens, tmp_path / "s", ORIGIN)
    other = KvCache(n_kv_layers=n_layers, heads=heads, n_ctx=64)
    with pytest.raises(SavedSequenceError, match=r"its layout .* is \[2, 2, 2, 16, 1, 0, 0, 0\], the cache's \["):
        restore_sequence(other, tmp_path / "s", ORIGIN)
    assert other.can_open()
    other.close()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is no saved sequence"),
        (b"GGUF" + bytes(100), "it is no saved sequence"),
        (b"EMELSEQ\0" + bytes(8), "it is cut off: 16 bytes are not even a header"),
        (b"EMELSEQ\0" + bytes([9]) + bytes(200), "it is of format 9, this version of EMEL reads format 2"),
    ],
)
def test_restoring_refuses_other_files(cache: KvCache, tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "s").write_bytes(content)
    with pytest.raises(SavedSequenceError, match=message):
        restore_sequence(cache, tmp_path / "s", ORIGIN)


def test_restoring_refuses_every_cut_and_every_altered_byte(cache: KvCache, tmp_path: Path) -> None:
    sequence, tokens = computed(cache, 20)
    path = tmp_path / "s"
    save_sequence(cache, sequence, tokens, path, ORIGIN)
    whole = path.read_bytes()
    free = cache.free_blocks()

    @settings(max_examples=150, deadline=None)
    @given(at=st.integers(0, len(whole) - 1), flip=st.integers(1, 255))
    def alter(at: int, flip: int) -> None:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :])
        with pytest.raises(SavedSequenceError, match=r"^cannot restore "):
            restore_sequence(cache, path, ORIGIN)
        assert cache.free_blocks() == free

    @settings(max_examples=50, deadline=None)
    @given(n=st.integers(0, len(whole) - 1))
    def cut(n: int) -> None:
        path.write_bytes(whole[:n])
        with pytest.raises(SavedSequenceError, match=r"cut off|no saved sequence"):
            restore_sequence(cache, path, ORIGIN)

    alter()
    cut()
    path.write_bytes(whole + b"x")
    with pytest.raises(
        SavedSequenceError, match=f"it is too long: {len(whole) + 1} bytes, 20 tokens take {len(whole)}"
    ):
        restore_sequence(cache, path, ORIGIN)
    path.write_bytes(whole[:-40] + bytes([whole[-40] ^ 1]) + whole[-39:])
    with pytest.raises(SavedSequenceError, match="its digest is wrong: the file was altered or is damaged"):
        restore_sequence(cache, path, ORIGIN)
    assert cache.free_blocks() == free
    assert holds(cache, sequence, tokens)


def test_restoring_needs_room(cache: KvCache, tmp_path: Path) -> None:
    sequence, tokens = computed(cache, 40)
    save_sequence(cache, sequence, tokens, tmp_path / "s", ORIGIN)
    for small, n in ((make_cache(n_ctx=39), 39), (make_cache(n_ctx=64, n_blocks=2), 32)):
        with pytest.raises(CacheFullError, match=f"it has 40 tokens; a sequence of at most {n} can be opened now"):
            restore_sequence(small, tmp_path / "s", ORIGIN)
        assert small.free_blocks() == small.n_blocks
        small.close()
    cache.open()
    cache.open()
    with pytest.raises(CacheFullError, match="at most 0 can be opened now"):
        restore_sequence(cache, tmp_path / "s", ORIGIN)
    with pytest.raises(FileNotFoundError):
        restore_sequence(cache, tmp_path / "none", ORIGIN)


def test_saving_refuses_ids_that_are_not_the_sequence(cache: KvCache, tmp_path: Path) -> None:
    sequence, tokens = computed(cache, 20)
    with pytest.raises(CacheError, match="sequence 0 has 20 tokens, 19 token ids were given"):
        save_sequence(cache, sequence, tokens[:-1], tmp_path / "s", ORIGIN)
    with pytest.raises(CacheError, match="token ids must be int32"):
        save_sequence(cache, sequence, [2**31] * 20, tmp_path / "s", ORIGIN)
    with pytest.raises(CacheError, match="a model's hash of 3 bytes: 32 are needed"):
        Origin(b"abc", 1)
    assert not list(tmp_path.iterdir())
