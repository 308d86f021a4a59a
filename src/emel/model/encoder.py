"""What encoders have in common: texts seen whole, both ways, and one row for each of them in the end."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from emel.graph.attention_ops import Pairing
from emel.lazy_dataclasses import dataclass
from emel.model.decoder import Decoder
from emel.model.errors import ModelError
from emel.model.geometry import Geometry, read_geometry
from emel.model.pooling import Pooling, pooling_key
from emel.model.tensors import ExpectedTensor, Role, matrix, split_rows, vector

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from emel.gguf import Metadata, TensorInfo
    from emel.graph.ops import Graph, Value

POSITIONS = "position_embd.weight"
TYPES = "token_types.weight"


@dataclass(frozen=True, slots=True)
class EncoderGeometry(Geometry):
    """The hyperparameters all encoders have."""

    n_types: int  # token types with an embedding; 0: there is none

    def as_fields(self) -> dict[str, Any]:
        """These values by name, for the constructor of a derived class."""
        return {each.name: getattr(self, each.name) for each in fields(EncoderGeometry)}


def read_encoder(
    metadata: Metadata,
    tensors: Mapping[str, TensorInfo],
    name: str,
    *,
    epsilon_key: str = "attention.layer_norm_epsilon",
    rope_base: float = 10000.0,
) -> EncoderGeometry:
    """From the metadata of architecture `name`; MetadataError or ModelError name the key."""
    key = f"{name}.attention.causal"
    if metadata.get_bool(key, False):
        raise ModelError(f"metadata {key!r} is true: EMEL knows {name} models only as encoders, which see both ways")
    geometry = read_geometry(metadata, tensors, name, epsilon_key=epsilon_key, rope_base=rope_base)
    n_types = tensors[TYPES].rows if TYPES in tensors else 0
    pooling = geometry.pooling or Pooling.MEAN
    if geometry.pooling is None and (value := metadata.get_int(pooling_key(name), 0)):
        raise ModelError(f"metadata {pooling_key(name)!r} is {value}: EMEL knows 1 (mean), 2 (cls) and 3 (last)")
    shared = geometry.as_fields() | {"pooling": pooling, "pools": pooling}
    return EncoderGeometry(**shared, n_types=n_types)


class Encoder(Decoder):
    """Writes an encoder's graph: what decoders' do, and what only encoders have."""

    def __init__(self, parameters: EncoderGeometry, tensors: Mapping[str, TensorInfo]) -> None:
        super().__init__(parameters, tensors)
        self._scale = parameters.head_dim**-0.5

    def embed_texts(self) -> Value:
        """(n_tokens, d_model): tokens plus, where the file has them, their type and position; layer-normed."""
        positions, types = (self.weights.vector(name) if name in self._tensors else None for name in (POSITIONS, TYPES))
        x = self.builder.embed(self.weights.matrix("token_embd.weight"), positions=positions, types=types)
        return self.layer_norm(x, "token_embd_norm")

    def layer_norm(self, x: Value, name: str) -> Value:
        """The layer norm `name`."""
        weight, bias = self.weights.vector(f"{name}.weight"), self.weights.bias(name)
        return self.builder.layer_norm(x, weight, bias, self._parameters.norm_epsilon)

    def attend(self, x: Value, block: str, table: Value | None) -> Value:
        """What the tokens of a text, all of them, give to each other."""
        q, k, v = self.qkv(x, block)
        q = self.builder.rope_store(q, k, v, table, pairing=Pairing.HALVES)
        a = self.builder.attention(q, scale=self._scale, is_causal=False)
        return self.linear(a, f"{block}attn_output")

    def finish_pooled(self, x: Value, matrices: Sequence[str] = ()) -> Graph:
        """A row for each text is the result: the pooled row, multiplied by matrices where there are any."""
        pooled = self.pool(x, is_result=not matrices)
        for name in matrices[:-1]:
            pooled = self.builder.linear(pooled, self.weights.matrix(name))
        for name in matrices[-1:]:
            self.builder.logits(pooled, self.weights.matrix(name))
        return self.builder.finish()


def layer_norm_tensors(name: str, n: int) -> list[ExpectedTensor]:
    """The weight of a layer norm and its bias."""
    return [vector(f"{name}.weight", n), vector(f"{name}.bias", n, is_required=False)]


def embedding_tensors(p: EncoderGeometry) -> list[ExpectedTensor]:
    """Embeddings of tokens and, where a file has them, of their types; the norm behind them."""
    types = [ExpectedTensor(TYPES, (p.n_types, p.d_model), role=Role.VECTOR)] if p.n_types else []
    return [
        matrix("token_embd.weight", p.n_vocab, p.d_model),
        *layer_norm_tensors("token_embd_norm", p.d_model),
        *types,
    ]


def split_qkv(p: Geometry, tensors: Mapping[str, TensorInfo]) -> dict[str, TensorInfo]:
    """The tensors with each joined attn_qkv, matrix or bias, as three; ModelError for a wrong shape."""
    seen = dict(tensors)
    for layer in range(p.n_layers):
        heads = p.heads_of(layer)
        for suffix in ("weight", "bias"):
            joined = f"blk.{layer}.attn_qkv.{suffix}"
            if joined in tensors:
                parts = {"attn_q": heads.q_width, "attn_k": heads.kv_width, "attn_v": heads.kv_width}
                rows = {f"blk.{layer}.{part}.{suffix}": n for part, n in parts.items()}
                seen |= {part.name: part for part in split_rows(seen.pop(joined), rows)}
    return seen
