"""llama: the decoder of Llama 1 to 3 (https://arxiv.org/abs/2302.13971, https://arxiv.org/abs/2407.21783).

Pre-norm blocks of grouped-query attention with RoPE and a SwiGLU feed-forward; no norm on queries or keys. GGUF files
of this architecture hold attn_q and attn_k permuted so that RoPE pairs adjacent dimensions. SmolLM, TinyLlama, Mistral
and others use it too. What differs between files: tied or own output matrix, biases, per-frequency factors
(rope_freqs.weight, Llama 3.1), linear position scaling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from emel.graph.builder import GraphBuilder
from emel.graph.ops import Heads, Pairing
from emel.kernel.packing import Vector
from emel.kernel.rope import rope_frequencies
from emel.model.binding import FileWeights, read_vector
from emel.model.errors import ModelError
from emel.model.parameters import MAX_LAYERS, positive_float, positive_int
from emel.model.tensors import ExpectedTensor, Role, matrix, vector
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emel.gguf import GgufFile, Metadata, TensorInfo
    from emel.graph.ops import Graph

NAME = "llama"
PAIRING = Pairing.ADJACENT
ROPE_FREQUENCIES = "rope.frequencies"  # made at load, no tensor of the file
ROPE_FACTORS = "rope_freqs.weight"
_MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


# ---- parameters ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parameters:
    """The hyperparameters of one file."""

    n_layers: int
    d_model: int
    d_ff: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    n_vocab: int
    n_ctx: int  # the longest context the model was trained for
    n_rot: int
    rope_base: float
    rope_linear_scale: float
    norm_epsilon: float

    @property
    def heads(self) -> Heads:
        """Attention geometry."""
        return Heads(self.n_heads, self.n_kv_heads, self.head_dim)

    @property
    def n_kv_layers(self) -> int:
        """Layers that keep keys and values."""
        return self.n_layers


def read_parameters(metadata: Metadata, tensors: Mapping[str, TensorInfo]) -> Parameters:
    """From the metadata, and the vocabulary size from the embedding; MetadataError or ModelError name the key."""
    n_heads = positive_int(metadata, f"{NAME}.attention.head_count")
    d_model = positive_int(metadata, f"{NAME}.embedding_length")
    head_dim = positive_int(metadata, f"{NAME}.attention.key_length", d_model // n_heads)
    value_dim = positive_int(metadata, f"{NAME}.attention.value_length", head_dim)
    if value_dim != head_dim:
        raise ModelError(f"'{NAME}.attention.value_length' is {value_dim}: it must equal the key length {head_dim}")
    if metadata.get_int(f"{NAME}.expert_count", 0):
        raise ModelError(f"this {NAME} file is a mixture of experts ('{NAME}.expert_count'): EMEL cannot run it yet")
    n_kv_heads = positive_int(metadata, f"{NAME}.attention.head_count_kv", n_heads)
    if n_heads % n_kv_heads:
        raise ModelError(f"'{NAME}.attention.head_count_kv' is {n_kv_heads}: it must divide the {n_heads} query heads")
    n_rot = positive_int(metadata, f"{NAME}.rope.dimension_count", head_dim)
    if n_rot % 2 or n_rot > head_dim:
        raise ModelError(f"'{NAME}.rope.dimension_count' is {n_rot}: an even number up to {head_dim} is needed")
    return Parameters(
        n_layers=positive_int(metadata, f"{NAME}.block_count", at_most=MAX_LAYERS),
        d_model=d_model,
        d_ff=positive_int(metadata, f"{NAME}.feed_forward_length"),
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        n_vocab=_n_vocab(tensors),
        n_ctx=positive_int(metadata, f"{NAME}.context_length"),
        n_rot=n_rot,
        rope_base=positive_float(metadata, f"{NAME}.rope.freq_base", 10000.0),
        rope_linear_scale=_linear_scale(metadata),
        norm_epsilon=positive_float(metadata, f"{NAME}.attention.layer_norm_rms_epsilon"),
    )


def _n_vocab(tensors: Mapping[str, TensorInfo]) -> int:
    embedding = tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelError(f"the file lacks tensor 'token_embd.weight' that a {NAME} model needs")
    return embedding.rows


def _linear_scale(metadata: Metadata) -> float:
    kind = metadata.get_str(f"{NAME}.rope.scaling.type", "")
    older = positive_float(metadata, f"{NAME}.rope.scale_linear", 1.0)
    if kind == "linear":
        return positive_float(metadata, f"{NAME}.rope.scaling.factor", older)
    if kind not in ("", "none"):
        raise ModelError(f"'{NAME}.rope.scaling.type' is {kind!r}: EMEL knows 'linear' and 'none'")
    return older


# ---- tensors -------------------------------------------------------------------------------------


def expected_tensors(parameters: Parameters) -> list[ExpectedTensor]:
    """Every tensor a file may have, with its shape."""
    p = parameters
    shapes = {
        "attn_q": (p.heads.q_width, p.d_model),
        "attn_k": (p.heads.kv_width, p.d_model),
        "attn_v": (p.heads.kv_width, p.d_model),
        "attn_output": (p.d_model, p.heads.q_width),
        "ffn_gate": (p.d_ff, p.d_model),
        "ffn_up": (p.d_ff, p.d_model),
        "ffn_down": (p.d_model, p.d_ff),
    }
    tensors = [
        matrix("token_embd.weight", p.n_vocab, p.d_model),
        vector("output_norm.weight", p.d_model),
        matrix("output.weight", p.n_vocab, p.d_model, is_required=False),
        ExpectedTensor(ROPE_FACTORS, (p.n_rot // 2,), is_required=False, role=Role.PARAMETER),
    ]
    for layer in range(p.n_layers):
        tensors += [vector(f"blk.{layer}.{name}.weight", p.d_model) for name in ("attn_norm", "ffn_norm")]
        for name in _MATRICES:
            rows, cols = shapes[name]
            tensors.append(matrix(f"blk.{layer}.{name}.weight", rows, cols))
            tensors.append(vector(f"blk.{layer}.{name}.bias", rows, is_required=False))
    return tensors


def derived_vectors(parameters: Parameters, file: GgufFile) -> list[Vector]:
    """What is computed at load: the inverse frequencies of RoPE, (n_rot / 2,) float64."""
    factors = read_vector(file, ROPE_FACTORS) if ROPE_FACTORS in file.tensors else None
    frequencies = rope_frequencies(
        parameters.rope_base, parameters.n_rot, factors=factors, linear_scale=parameters.rope_linear_scale
    )
    return [Vector(ROPE_FREQUENCIES, TensorType.F64, len(frequencies), frequencies)]


# ---- graph ---------------------------------------------------------------------------------------


def build(parameters: Parameters, tensors: Mapping[str, TensorInfo]) -> Graph:
    """The graph. Behind the attention of the last layer only the rows whose logits are wanted are computed."""
    p = parameters
    builder = GraphBuilder(heads=p.heads, n_vocab=p.n_vocab)
    weights = FileWeights(builder, tensors)
    table = builder.rope_table(builder.vector(ROPE_FREQUENCIES, p.n_rot // 2, TensorType.F64))
    x = builder.embed(weights.matrix("token_embd.weight"))
    for layer in range(p.n_layers):
        builder.begin_layer()
        block = f"blk.{layer}."
        h = builder.rms_norm(x, weights.vector(f"{block}attn_norm.weight"), p.norm_epsilon)
        q, k, v = (weights.linear(h, block + name) for name in ("attn_q", "attn_k", "attn_v"))
        q = builder.rope_store(q, k, v, table, pairing=PAIRING)
        a = builder.attention(q, scale=p.head_dim**-0.5)
        if layer == p.n_layers - 1:
            x, a = builder.gather(x), builder.gather(a)
        x = builder.add(x, weights.linear(a, f"{block}attn_output"))
        h = builder.rms_norm(x, weights.vector(f"{block}ffn_norm.weight"), p.norm_epsilon)
        gate, up = weights.linear(h, f"{block}ffn_gate"), weights.linear(h, f"{block}ffn_up")
        x = builder.add(x, weights.linear(builder.gated(gate, up), f"{block}ffn_down"))
    builder.end_layers()
    h = builder.rms_norm(x, weights.vector("output_norm.weight"), p.norm_epsilon)
    output = "output.weight" if "output.weight" in tensors else "token_embd.weight"
    builder.argmax(builder.logits(h, weights.matrix(output)))
    return builder.finish()
