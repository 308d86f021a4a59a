"""Llama files of a few kilobytes, sound unless a test changes a key or a tensor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import gguf
import numpy as np

from model.gguf_writing import add_keys, finish

if TYPE_CHECKING:
    from pathlib import Path

Q8 = gguf.GGMLQuantizationType.Q8_0
F32 = gguf.GGMLQuantizationType.F32


@dataclass
class LlamaFile:
    """Two layers, 64 wide. `keys` None leaves a key out; `tensors` None leaves a tensor out, a shape changes it."""

    architecture: str = "llama"
    keys: dict[str, object] = field(default_factory=dict)
    tensors: dict[str, tuple[int, ...] | None] = field(default_factory=dict)
    matrix_type: gguf.GGMLQuantizationType = Q8
    types: dict[str, gguf.GGMLQuantizationType] = field(default_factory=dict)

    def all_keys(self) -> dict[str, object]:
        keys: dict[str, object] = {
            "llama.context_length": 128,
            "llama.embedding_length": 64,
            "llama.block_count": 2,
            "llama.feed_forward_length": 96,
            "llama.attention.head_count": 2,
            "llama.attention.head_count_kv": 1,
            "llama.attention.layer_norm_rms_epsilon": 1e-5,
            "llama.rope.freq_base": 10000.0,
            "llama.rope.dimension_count": 32,
        }
        return keys | self.keys

    def all_tensors(self) -> dict[str, tuple[int, ...]]:
        tensors: dict[str, tuple[int, ...] | None] = {"token_embd.weight": (40, 64), "output_norm.weight": (64,)}
        for layer in range(2):
            block = f"blk.{layer}."
            tensors |= {block + "attn_norm.weight": (64,), block + "ffn_norm.weight": (64,)}
            tensors |= {block + "attn_q.weight": (64, 64), block + "attn_k.weight": (32, 64)}
            tensors |= {block + "attn_v.weight": (32, 64), block + "attn_output.weight": (64, 64)}
            tensors |= {block + "ffn_gate.weight": (96, 64), block + "ffn_up.weight": (96, 64)}
            tensors |= {block + "ffn_down.weight": (64, 96)}
        return {name: shape for name, shape in (tensors | self.tensors).items() if shape is not None}

    def write(self, folder: Path) -> Path:
        path = folder / "model.gguf"
        writer = gguf.GGUFWriter(path, self.architecture)
        add_keys(writer, self.all_keys())
        rng = np.random.default_rng(0)
        for name, shape in self.all_tensors().items():
            values = (rng.standard_normal(shape) / 8).astype(np.float32)
            if name == "rope_freqs.weight":
                values = np.float32(1.0) + np.abs(values)
            elif name.endswith("norm.weight"):
                values += 1.0
            type_ = self.types.get(name, self.matrix_type if len(shape) == 2 else F32)
            raw = values if type_ is F32 else self._encode(values, type_)
            writer.add_tensor(name, raw, raw_dtype=None if type_ is F32 else type_)
        finish(writer)
        return path

    @staticmethod
    def _encode(values: np.ndarray, type_: gguf.GGMLQuantizationType) -> np.ndarray:
        if type_ is gguf.GGMLQuantizationType.I8:
            return values.astype(np.int8)
        return gguf.quants.quantize(values, type_)
