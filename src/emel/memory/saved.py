"""A sequence in a file: what it is, its tokens, its keys and values, its recurrent state, and a digest of all that.

Little-endian, nothing padded:

    magic            8 bytes    EMELSEQ, 0
    format           uint32     2
    numerics         uint32     numerics version that computed the bytes (docs/concepts/numerics.md)
    model            32 bytes   hash of the model
    geometry         3 uint32   layers with keys and values, KV heads, numbers in a head
    block, type      2 uint32   16 tokens in a block; GGUF type of the numbers: 1, float16
    state            3 uint32   layers with a recurrent state, values of a product, products the next token needs; or 0
    n_tokens         uint64
    token ids        n_tokens int32
    blocks           for each layer its blocks in the order of positions; zeros behind the last token
    state            for each of its layers the products since, and those needed at, the last border of blocks before
                     the last token: float32, the oldest first
    digest           32 bytes   blake2b of everything before it

The file depends on the tokens alone, not on where their blocks lie or who had them before. It appears whole or not at
all, readable by its owner only: keys and values tell what was said.
"""

from __future__ import annotations

import os
import stat
import struct
import tempfile
from array import array
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from emel.io.publishing import publish
from emel.kernel.sizes import KV_BLOCK, KV_TYPES
from emel.lazy_dataclasses import dataclass
from emel.memory.errors import CacheError, CacheFullError, SavedSequenceError
from emel.memory.hybrid import HybridCache
from emel.memory.sequences import blocks_for
from emel.memory.storage import KvStorage
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emel.memory.kv import KvCache

Cache: TypeAlias = "KvCache | HybridCache"
MAGIC = b"EMELSEQ\0"
FORMAT = 2
HASH_BYTES = 32
_TYPE = 4  # in a layout
_HEADER = struct.Struct(f"<8sII{HASH_BYTES}sIIIIIIIIQ")


@dataclass(frozen=True, slots=True)
class Origin:
    """What computed a sequence: the hash of the model's file (32 bytes) and the numerics version."""

    model_hash: bytes
    numerics_version: int

    def __post_init__(self) -> None:
        if len(self.model_hash) != HASH_BYTES:
            raise CacheError(f"a model's hash of {len(self.model_hash)} bytes: {HASH_BYTES} are needed")


def save_sequence(
    cache: Cache, sequence: int, token_ids: Sequence[int], path: str | os.PathLike[str], origin: Origin
) -> None:
    """Writes the sequence's tokens, all of which are computed, to a file, in place of what was there.

    CacheError when `token_ids` are not as many as it holds or not int32; OSError, and nothing at `path` is touched.
    """
    n_tokens = cache.n_tokens(sequence)
    if len(token_ids) != n_tokens:
        raise CacheError(f"sequence {sequence} has {n_tokens} tokens, {len(token_ids)} token ids were given")
    try:
        ids = array("i", token_ids)
    except (OverflowError, TypeError) as error:
        raise CacheError(f"token ids must be int32: {error}") from error
    target = Path(path)
    if target.exists() and not target.is_file():
        raise CacheError(f"cannot save a sequence in place of {target}: it is no regular file")
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            digest = blake2b(digest_size=HASH_BYTES)
            header = _header(cache, n_tokens, origin)
            for piece in (header, ids.tobytes(), *_content(_kv(cache), sequence), *_state(cache, sequence)):
                digest.update(piece)
                file.write(piece)
            file.write(digest.digest())
        publish(Path(name), target)
    finally:
        Path(name).unlink(missing_ok=True)


def restore_sequence(cache: Cache, path: str | os.PathLike[str], origin: Origin) -> tuple[int, list[int]]:
    """Opens a sequence with what a file holds; returns it and its token ids.

    SavedSequenceError for a file that is not whole or of something else, CacheFullError when the cache has no room,
    OSError; the cache is as before then.
    """
    if not stat.S_ISREG(Path(path).stat().st_mode):  # others may have nothing to read, forever
        raise _refused(path, "it is no regular file")
    with Path(path).open("rb") as file:
        n_tokens = _check_header(cache, file, path, origin)
        if not cache.can_open() or n_tokens > min(cache.n_ctx, cache.free_blocks() * KV_BLOCK):
            raise CacheFullError(
                f"cannot restore {os.fspath(path)}: it has {n_tokens} tokens; a sequence of at most "
                f"{min(cache.n_ctx, cache.free_blocks() * KV_BLOCK) if cache.can_open() else 0} can be opened now"
            )
        sequence = cache.open()
        try:
            cache.reserve_all([(sequence, n_tokens)])
            return sequence, _read_content(cache, sequence, file, path)
        except BaseException:
            cache.close_sequence(sequence)
            raise


def _kv(cache: Cache) -> KvCache:
    return cache.kv if isinstance(cache, HybridCache) else cache


def _layout(cache: Cache) -> tuple[int, ...]:
    g = _kv(cache).geometry
    layout = (g.n_kv_layers, g.n_kv_heads, g.head_dim, KV_BLOCK, int(g.kv_type))
    if not isinstance(cache, HybridCache):
        return (*layout, 0, 0, 0)
    state = cache.slots.geometry
    return (*layout, state.n_layers, state.width, state.n_past)


def _header(cache: Cache, n_tokens: int, origin: Origin) -> bytes:
    return _HEADER.pack(MAGIC, FORMAT, origin.numerics_version, origin.model_hash, *_layout(cache), n_tokens)


def _border(n_tokens: int) -> int:
    """The last border of blocks before the last token: a prompt is found no further."""
    return max(n_tokens - 1, 0) // KV_BLOCK * KV_BLOCK


def _first_product(cache: HybridCache, n_tokens: int) -> int:
    """The position from which on products are kept, of a state that goes back to the border."""
    return max(_border(n_tokens) - cache.slots.geometry.n_past, 0)


def _state(cache: Cache, sequence: int) -> Iterator[memoryview[int]]:
    """Writable products of the sequence's state."""
    if isinstance(cache, HybridCache):
        yield from cache.slots.pieces(cache.slot(sequence), _first_product(cache, cache.n_tokens(sequence)))


def _content(cache: KvCache, sequence: int) -> Iterator[bytes | memoryview[int]]:
    """The bytes of the blocks; of a partial one only what the sequence's tokens left there."""
    blocks = cache.blocks(sequence)[: blocks_for(cache.n_tokens(sequence))]
    n_in_tail = cache.n_tokens(sequence) % KV_BLOCK
    if not n_in_tail:
        yield from cache.storage.pieces(blocks)
        return
    tail = KvStorage(cache.geometry, 1)
    for ours, theirs in zip(tail.pieces([0]), cache.storage.pieces(blocks[-1:]), strict=True):
        ours[:] = theirs
    tail.forget_slots(0, n_in_tail)
    for layer in range(cache.geometry.n_kv_layers):
        yield from cache.storage.pieces(blocks[:-1], [layer])
        yield from tail.pieces([0], [layer])
    tail.close()


def _check_header(cache: Cache, file: BinaryIO, path: str | os.PathLike[str], origin: Origin) -> int:
    """The number of tokens of a file that fits the cache and has the right size."""
    size = os.fstat(file.fileno()).st_size
    header = file.read(_HEADER.size)
    if header[: len(MAGIC)] != MAGIC:
        raise _refused(path, "it is no saved sequence")
    if len(header) < _HEADER.size:
        raise _refused(path, f"it is cut off: {size} bytes are not even a header")
    _, form, numerics, model, *layout, n_tokens = _HEADER.unpack(header)
    if form != FORMAT:
        raise _refused(path, f"it is of format {form}, this version of EMEL reads format {FORMAT}")
    if model != origin.model_hash:
        raise _refused(
            path,
            "another model computed it, or other activations or a longer context: load as it was, or compute it again",
        )
    if numerics != origin.numerics_version:
        raise _refused(
            path, f"numerics version {numerics} computed it, this is {origin.numerics_version}: compute it again"
        )
    expected = list(_layout(cache))
    if layout[_TYPE] != expected[_TYPE] and layout[_TYPE] in set(KV_TYPES):
        theirs, ours = (TensorType(each[_TYPE]).name.lower() for each in (layout, expected))
        raise _refused(path, f"its keys and values are {theirs}, the cache's {ours}: load with kv_type {theirs!r}")
    if layout != expected:
        raise _refused(
            path, f"its layout (layers, heads, head size, block, type, state) is {layout}, the cache's {expected}"
        )
    n_bytes = _HEADER.size + 4 * n_tokens + blocks_for(n_tokens) * _kv(cache).geometry.bytes_per_block + HASH_BYTES
    if isinstance(cache, HybridCache):
        state = cache.slots.geometry
        n_bytes += 4 * state.n_layers * state.width * (n_tokens - _first_product(cache, n_tokens))
    if size != n_bytes:
        what = "cut off" if size < n_bytes else "too long"
        raise _refused(path, f"it is {what}: {size} bytes, {n_tokens} tokens take {n_bytes}")
    return int(n_tokens)


def _read_content(cache: Cache, sequence: int, file: BinaryIO, path: str | os.PathLike[str]) -> list[int]:
    """Fills the sequence's blocks and its state; the token ids."""
    kv, n_tokens = _kv(cache), cache.n_tokens(sequence)
    file.seek(0)
    digest = blake2b(file.read(_HEADER.size), digest_size=HASH_BYTES)
    raw = file.read(4 * n_tokens)
    digest.update(raw)
    if isinstance(cache, HybridCache):
        cache.slots.place(cache.slot(sequence), n_tokens, _border(n_tokens))
    for piece in (*kv.storage.pieces(kv.blocks(sequence)), *_state(cache, sequence)):
        n_read = file.readinto(piece)  # type: ignore[attr-defined]
        digest.update(piece[:n_read])
    if file.read(HASH_BYTES) != digest.digest():
        raise _refused(path, "its digest is wrong: the file was altered or is damaged")
    return array("i", raw).tolist()


def _refused(path: str | os.PathLike[str], why: str) -> SavedSequenceError:
    return SavedSequenceError(f"cannot restore {os.fspath(path)}: {why}")
