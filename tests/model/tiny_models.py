"""Models of every architecture, a few hundred kilobytes each, with seeded random weights in any type.

    write_tiny_model(path, TINY_MODELS["qwen3"](), "Q8_0")

Everything a file of the architecture has is there under GGUF's names, so other engines load it too. The dimensions are
small but show what is easily confused: query heads shared by fewer key heads, heads wider than d_model / n_heads,
enough layers for a pattern of layers. All widths are multiples of 256, which the K formats need.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import gguf
import numpy as np

from model.gguf_writing import add_keys, finish
from model.random_weights import add_byte_vocabulary, random_matrix, random_vector

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

N_VOCAB = 500
N_CTX = 256
D_MODEL = 256
D_FF = 512
EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class TinyModel:
    """A file: metadata without the architecture's prefix, matrices by shape, vectors by (length, mean).

    Metadata of the tokenizer keeps its own prefix. `factors`: what divides the frequencies of RoPE, from 1 up: (length,
    largest). `plain`: matrices that are float32 in every file.
    """

    architecture: str
    keys: dict[str, object]
    matrices: dict[str, tuple[int, ...]]
    vectors: dict[str, tuple[int, float]]
    factors: dict[str, tuple[int, float]] = field(default_factory=dict)
    plain: dict[str, tuple[int, ...]] = field(default_factory=dict)


def write_tiny_model(path: Path, model: TinyModel, weight_type: str, seed: int = 0, tensors_a_part: int = 0) -> None:
    """Writes one model; `weight_type` is a GGUF type name such as "Q4_K" for every matrix.

    `tensors_a_part`: the model is split into files of as many tensors, which get the names of parts beside `path`.
    """
    writer = gguf.GGUFWriter(path, model.architecture, split_max_tensors=tensors_a_part)
    writer.add_name("tiny")  # llama.cpp judges vocabularies by the names of some models
    prefix = f"{model.architecture}."
    add_keys(
        writer, {key if key.startswith("tokenizer.") else prefix + key: value for key, value in model.keys.items()}
    )
    add_byte_vocabulary(writer, N_VOCAB)
    random, type_ = np.random.default_rng(seed), gguf.GGMLQuantizationType[weight_type]
    for name, shape in model.matrices.items():
        writer.add_tensor(name, random_matrix(random, shape, type_), raw_dtype=type_)
    for name, (n, around) in model.vectors.items():
        writer.add_tensor(name, random_vector(random, n, around))
    for name, shape in model.plain.items():
        writer.add_tensor(name, random_matrix(random, shape, gguf.GGMLQuantizationType.F32))
    for name, (n, largest) in model.factors.items():
        writer.add_tensor(name, np.geomspace(1.0, largest, n).astype(np.float32))
    finish(writer)


@dataclass(frozen=True, slots=True)
class Body:
    """The sizes that decoders here share, and their tensors."""

    n_layers: int = 3
    n_heads: int = 4
    n_kv_heads: int = 2
    head_dim: int = 64
    rope_base: float = 10000.0

    def keys(self, **more: object) -> dict[str, object]:
        """Metadata; `a__b` stands for `a.b`."""
        common: dict[str, object] = {
            "block_count": self.n_layers,
            "context_length": N_CTX,
            "embedding_length": D_MODEL,
            "feed_forward_length": D_FF,
            "attention.head_count": self.n_heads,
            "attention.head_count_kv": self.n_kv_heads,
            "attention.key_length": self.head_dim,
            "attention.value_length": self.head_dim,
            "attention.layer_norm_rms_epsilon": EPSILON,
            "rope.freq_base": self.rope_base,
            "rope.dimension_count": self.head_dim,
            "vocab_size": N_VOCAB,
        }
        return common | {key.replace("__", "."): value for key, value in more.items()}

    def matrices(self, *, is_tied: bool = True) -> dict[str, tuple[int, ...]]:
        """Embedding, output, attention and feed-forward of every layer."""
        q_width, kv_width = self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (N_VOCAB, D_MODEL)}
        if not is_tied:
            shapes["output.weight"] = (N_VOCAB, D_MODEL)
        for layer in range(self.n_layers):
            block = f"blk.{layer}."
            shapes |= {
                f"{block}attn_q.weight": (q_width, D_MODEL),
                f"{block}attn_k.weight": (kv_width, D_MODEL),
                f"{block}attn_v.weight": (kv_width, D_MODEL),
                f"{block}attn_output.weight": (D_MODEL, q_width),
                f"{block}ffn_gate.weight": (D_FF, D_MODEL),
                f"{block}ffn_up.weight": (D_FF, D_MODEL),
                f"{block}ffn_down.weight": (D_MODEL, D_FF),
            }
        return shapes

    def norms(self, *names: str, width: int = D_MODEL) -> dict[str, tuple[int, float]]:
        """Norms of every layer."""
        return {f"blk.{layer}.{name}.weight": (width, 1.0) for layer in range(self.n_layers) for name in names}

    def biases(self, **widths: int) -> dict[str, tuple[int, float]]:
        """Biases of every layer, around 0."""
        return {f"blk.{layer}.{name}.bias": (n, 0.0) for layer in range(self.n_layers) for name, n in widths.items()}


OUTPUT_NORM = {"output_norm.weight": (D_MODEL, 1.0)}
PRE_NORMS = ("attn_norm", "ffn_norm")
ALL_NORMS = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
HEAD_NORMS = ("attn_q_norm", "attn_k_norm")


def tiny_llama() -> TinyModel:
    """Llama 3.1: factors of RoPE; an output matrix of its own."""
    body = Body(rope_base=500000.0)
    vectors = OUTPUT_NORM | body.norms(*PRE_NORMS)
    return TinyModel("llama", body.keys(), body.matrices(is_tied=False), vectors, {"rope_freqs.weight": (32, 8.0)})


def tiny_llama_with_biases() -> TinyModel:
    """Biases on every matrix, one key head, positions scaled linearly."""
    body = Body(n_kv_heads=1)
    biases = body.biases(attn_q=256, attn_k=64, attn_v=64, attn_output=256)
    keys = body.keys(rope__scaling__type="linear", rope__scaling__factor=4.0)
    return TinyModel("llama", keys, body.matrices(), OUTPUT_NORM | body.norms(*PRE_NORMS) | biases)


def tiny_mistral() -> TinyModel:
    """Mistral 7B 0.1: a sliding window over every layer."""
    body = Body()
    keys = body.keys(attention__sliding_window=16)
    return TinyModel("llama", keys, body.matrices(is_tied=False), OUTPUT_NORM | body.norms(*PRE_NORMS))


def tiny_llama_of_layers() -> TinyModel:
    """Layers with different numbers of key heads and widths of the feed-forward."""
    body = Body()
    keys = body.keys(attention__head_count_kv=[2, 1, 4], feed_forward_length=[512, 256, 512])
    matrices = body.matrices()
    for layer, width in ((1, 64), (2, 256)):
        matrices |= {f"blk.{layer}.attn_{each}.weight": (width, D_MODEL) for each in "kv"}
    matrices |= {f"blk.1.ffn_{each}.weight": (256, D_MODEL) for each in ("gate", "up")}
    matrices["blk.1.ffn_down.weight"] = (D_MODEL, 256)
    return TinyModel("llama", keys, matrices, OUTPUT_NORM | body.norms(*PRE_NORMS))


def tiny_qwen2() -> TinyModel:
    """Biases on queries, keys and values."""
    body = Body(rope_base=1e6)
    biases = body.biases(attn_q=256, attn_k=128, attn_v=128)
    return TinyModel("qwen2", body.keys(), body.matrices(), OUTPUT_NORM | body.norms(*PRE_NORMS) | biases)


def tiny_qwen2_stretched() -> TinyModel:
    """YaRN, from 32 tokens to 128."""
    body = Body(n_layers=2)
    biases = body.biases(attn_q=256, attn_k=128, attn_v=128)
    keys = body.keys(rope__scaling__type="yarn", rope__scaling__factor=4.0, rope__scaling__original_context_length=32)
    return TinyModel("qwen2", keys, body.matrices(), OUTPUT_NORM | body.norms(*PRE_NORMS) | biases)


def tiny_qwen3() -> TinyModel:
    """Norms of heads, which are twice as wide as d_model / n_heads."""
    body = Body(head_dim=128, rope_base=1e6)
    vectors = OUTPUT_NORM | body.norms(*PRE_NORMS) | body.norms(*HEAD_NORMS, width=128)
    return TinyModel("qwen3", body.keys(), body.matrices(), vectors)


def tiny_gemma2() -> TinyModel:
    """Caps, and a window in every other of four layers."""
    body = Body(n_layers=4, head_dim=128)
    keys = body.keys(attention__sliding_window=16, attn_logit_softcapping=50.0, final_logit_softcapping=30.0)
    return TinyModel("gemma2", keys, body.matrices(), OUTPUT_NORM | body.norms(*ALL_NORMS))


def tiny_gemma3() -> TinyModel:
    """Six layers, of which the last sees everything, at an eighth of the positions; one key head."""
    body = Body(n_layers=6, n_kv_heads=1, rope_base=1e6)
    keys = body.keys(attention__sliding_window=16, rope__scaling__type="linear", rope__scaling__factor=8.0)
    vectors = OUTPUT_NORM | body.norms(*ALL_NORMS) | body.norms(*HEAD_NORMS, width=64)
    return TinyModel("gemma3", keys, body.matrices(), vectors)


def tiny_phi3() -> TinyModel:
    """Joined matrices; LongRoPE from 64 tokens to 128 over three quarters of a head."""
    body = Body()
    keys = body.keys(
        rope__dimension_count=48, rope__scaling__original_context_length=64, rope__scaling__attn_factor=1.19
    )
    matrices = body.matrices(is_tied=False)
    for layer in range(body.n_layers):
        block = f"blk.{layer}."
        for name in ("attn_q", "attn_k", "attn_v", "ffn_gate"):
            del matrices[f"{block}{name}.weight"]
        matrices |= {f"{block}attn_qkv.weight": (512, D_MODEL), f"{block}ffn_up.weight": (2 * D_FF, D_MODEL)}
    factors = {"rope_factors_long.weight": (24, 12.0), "rope_factors_short.weight": (24, 1.5)}
    return TinyModel("phi3", keys, matrices, OUTPUT_NORM | body.norms(*PRE_NORMS), factors)


def tiny_granite() -> TinyModel:
    """The multipliers of Granite 3.1 2B."""
    body = Body()
    keys = body.keys(embedding_scale=12.0, attention__scale=0.015625, residual_scale=0.22, logit_scale=8.0)
    return TinyModel("granite", keys, body.matrices(), OUTPUT_NORM | body.norms(*PRE_NORMS))


def tiny_granite_without_positions() -> TinyModel:
    """RoPE turned off, as in the layers of attention of Granite 4."""
    model = tiny_granite()
    return replace(model, keys=model.keys | {"rope.scaling.finetuned": False})


def tiny_olmo2() -> TinyModel:
    """Norms behind the blocks and over all heads."""
    body = Body(rope_base=500000.0)
    q_norms, k_norms = body.norms("attn_q_norm", width=256), body.norms("attn_k_norm", width=128)
    vectors = OUTPUT_NORM | body.norms("post_attention_norm", "post_ffw_norm") | q_norms | k_norms
    return TinyModel("olmo2", body.keys(), body.matrices(is_tied=False), vectors)


def tiny_olmo3() -> TinyModel:
    """OLMo 3: of four layers three see a window, the fourth is stretched."""
    body = Body(n_layers=4)
    q_norms, k_norms = body.norms("attn_q_norm", width=256), body.norms("attn_k_norm", width=128)
    vectors = OUTPUT_NORM | body.norms("post_attention_norm", "post_ffw_norm") | q_norms | k_norms
    keys = body.keys(
        attention__sliding_window=16,
        rope__scaling__type="yarn",
        rope__scaling__factor=4.0,
        rope__scaling__original_context_length=32,
    )
    return TinyModel("olmo2", keys, body.matrices(is_tied=False), vectors)


def tiny_smollm3() -> TinyModel:
    """Five layers, of which the fourth has no positions."""
    body = Body(n_layers=5, rope_base=1e6)
    return TinyModel("smollm3", body.keys(), body.matrices(), OUTPUT_NORM | body.norms(*PRE_NORMS))


TINY_MODELS: dict[str, Callable[[], TinyModel]] = {
    "llama": tiny_llama,
    "llama-biases": tiny_llama_with_biases,
    "llama-layers": tiny_llama_of_layers,
    "llama-window": tiny_mistral,
    "qwen2": tiny_qwen2,
    "qwen2-yarn": tiny_qwen2_stretched,
    "qwen3": tiny_qwen3,
    "gemma2": tiny_gemma2,
    "gemma3": tiny_gemma3,
    "phi3": tiny_phi3,
    "granite": tiny_granite,
    "granite-nope": tiny_granite_without_positions,
    "olmo2": tiny_olmo2,
    "olmo2-window": tiny_olmo3,
    "smollm3": tiny_smollm3,
}
