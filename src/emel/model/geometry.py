"""What the metadata of every decoder says: sizes, heads, context, positions."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from emel.graph.ops import Heads
from emel.lazy_dataclasses import dataclass
from emel.model.errors import ModelError
from emel.model.parameters import MAX_LAYERS, per_layer, positive_float, positive_int
from emel.model.pooling import Pooling, read_pooling
from emel.model.rope import Rope, read_rope

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emel.gguf import Metadata, TensorInfo
    from emel.graph.state_ops import StateGeometry


@dataclass(frozen=True, slots=True)
class Geometry:
    """The hyperparameters all decoders have; architectures with more of them derive their own class.

    Tuples have one entry for each layer. A layer of 0 key heads has no attention.
    """

    n_layers: int
    d_model: int
    d_ff: tuple[int, ...]
    n_heads: int
    n_kv_heads: tuple[int, ...]
    head_dim: int
    n_vocab: int
    n_ctx: int  # the longest context the model was trained for
    norm_epsilon: float
    rope: Rope
    pooling: Pooling | None  # the file's way to one embedding of a text
    pools: Pooling | None  # how the graph makes one row of a text's; None: its result is logits

    @property
    def heads(self) -> Heads:
        """Attention geometry of the KV cache: the most key heads a layer has."""
        return Heads(self.n_heads, max(self.n_kv_heads), self.head_dim)

    @property
    def n_kv_layers(self) -> int:
        """Layers that keep keys and values."""
        return sum(n > 0 for n in self.n_kv_heads)

    @property
    def state(self) -> StateGeometry | None:
        """A sequence's recurrent state; None: its keys and values are all it keeps."""
        return None

    @property
    def embedding_width(self) -> int:
        """Values of a text's embedding, where the graph pools; 0: it has logits."""
        return self.d_model if self.pools else 0

    def heads_of(self, layer: int) -> Heads:
        """Attention geometry of a layer."""
        return Heads(self.n_heads, self.n_kv_heads[layer], self.head_dim)

    def as_fields(self) -> dict[str, Any]:
        """These values by name, for the constructor of a derived class."""
        return {each.name: getattr(self, each.name) for each in fields(Geometry)}


def read_geometry(
    metadata: Metadata,
    tensors: Mapping[str, TensorInfo],
    name: str,
    *,
    epsilon_key: str = "attention.layer_norm_rms_epsilon",
    rope_base: float = 10000.0,
    least_kv_heads: int = 1,
) -> Geometry:
    """From the metadata of architecture `name`, and the vocabulary size from the embedding.

    `rope_base` is what the architecture takes without the key. MetadataError or ModelError name the key.
    """
    n_layers = positive_int(metadata, f"{name}.block_count", at_most=MAX_LAYERS)
    n_heads = positive_int(metadata, f"{name}.attention.head_count")
    d_model = positive_int(metadata, f"{name}.embedding_length")
    head_dim = _head_dim(metadata, name, d_model, n_heads)
    n_ctx = positive_int(metadata, f"{name}.context_length")
    return Geometry(
        n_layers=n_layers,
        d_model=d_model,
        d_ff=per_layer(metadata, f"{name}.feed_forward_length", n_layers),
        n_heads=n_heads,
        n_kv_heads=_kv_heads(metadata, name, n_layers, n_heads, least_kv_heads),
        head_dim=head_dim,
        n_vocab=_n_vocab(tensors, name),
        n_ctx=n_ctx,
        norm_epsilon=positive_float(metadata, f"{name}.{epsilon_key}"),
        rope=read_rope(metadata, name, head_dim=head_dim, n_ctx=n_ctx, base=rope_base),
        pooling=read_pooling(metadata, name),
        pools=None,
    )


def _head_dim(metadata: Metadata, name: str, d_model: int, n_heads: int) -> int:
    head_dim = positive_int(metadata, f"{name}.attention.key_length", d_model // n_heads)
    value_dim = positive_int(metadata, f"{name}.attention.value_length", head_dim)
    if value_dim != head_dim:
        raise ModelError(f"'{name}.attention.value_length' is {value_dim}: it must equal the key length {head_dim}")
    return head_dim


def _kv_heads(metadata: Metadata, name: str, n_layers: int, n_heads: int, least: int) -> tuple[int, ...]:
    key = f"{name}.attention.head_count_kv"
    counts = per_layer(metadata, key, n_layers, n_heads, at_least=least)
    for count in counts:
        if count and n_heads % count:
            raise ModelError(f"'{key}' is {count}: it must divide the {n_heads} query heads")
    if not any(counts):
        raise ModelError(f"'{key}' is 0 for every layer: at least one must have attention")
    return counts


def _n_vocab(tensors: Mapping[str, TensorInfo], name: str) -> int:
    embedding = tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelError(f"the file lacks tensor 'token_embd.weight' that a {name} model needs")
    return embedding.rows
