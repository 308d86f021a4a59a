"""How much memory a model takes, from its file's metadata and tensor list alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.engine.options import DEFAULT_CONTEXT
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emel.gguf import GgufFile
    from emel.gguf.metadata import Metadata

DEFAULT_CONTEXTS = (DEFAULT_CONTEXT, 2 * DEFAULT_CONTEXT)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes: of the weights in the file and as they are laid out for computing, and of the KV cache by context."""

    file_bytes: int
    packed_bytes: int | None
    """None when some tensors have types that cannot be packed; `unsupported` names these."""
    unsupported: tuple[str, ...]
    kv_bytes: dict[int, int]
    read_bytes_per_token: int | None
    """Weights a decode step reads; None for a mixture of experts."""


def estimate(file: GgufFile, contexts: Sequence[int] | None = None) -> Footprint:
    """The footprint of a model file, for the given contexts in tokens (default: a few that people use)."""
    from emel.model.estimate import decode_bytes

    packed, unsupported = _packed_bytes(file)
    total = sum(tensor.n_bytes for tensor in file.tensors.values())
    return Footprint(
        file_bytes=total,
        packed_bytes=packed,
        unsupported=unsupported,
        kv_bytes=_kv_bytes(file.metadata, contexts),
        read_bytes_per_token=decode_bytes(file.tensors),
    )


def _packed_bytes(file: GgufFile) -> tuple[int | None, tuple[str, ...]]:
    from emel.kernel.sizes import packed_bytes

    total, refused = 0, set()
    for tensor in file.tensors.values():
        if tensor.rows == 1:  # norms and biases stay plain float32 vectors
            total += 4 * tensor.cols
            continue
        try:
            total += packed_bytes(tensor.type, tensor.rows, tensor.cols)
        except RuntimeError:
            refused.add(tensor.type.name)
    return (None if refused else total), tuple(sorted(refused))


def _kv_bytes(metadata: Metadata, contexts: Sequence[int] | None) -> dict[int, int]:
    """KV cache bytes by context; empty when the file does not describe attention the usual way."""
    from emel.kernel.sizes import KV_BLOCK, kv_bytes

    arch = metadata.get_str("general.architecture", "")
    n_layers = metadata.get_int(f"{arch}.block_count", 0)
    heads, kv_heads = metadata.get(f"{arch}.attention.head_count"), metadata.get(f"{arch}.attention.head_count_kv")
    d_model = metadata.get_int(f"{arch}.embedding_length", 0)
    if not isinstance(heads, int) or not heads or not n_layers or not d_model:
        return {}
    head_dim = metadata.get_int(f"{arch}.attention.key_length", d_model // heads)
    per_layer = [kv_heads if isinstance(kv_heads, int) else heads] * n_layers
    if isinstance(kv_heads, memoryview):  # one count for each layer
        per_layer = [int(count) for count in kv_heads]
    n_trained = metadata.get_int(f"{arch}.context_length", 0)
    if contexts is None:
        contexts = sorted({n for n in (*DEFAULT_CONTEXTS, n_trained) if 0 < n <= (n_trained or n)})
    try:
        return {
            n: sum(kv_bytes(1, -(-n // KV_BLOCK), count, head_dim) for count in per_layer if count) for n in contexts
        }
    except ValueError:  # a damaged file: no memory has such sizes
        return {}
