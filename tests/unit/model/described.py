"""Files of a few bytes that only describe a model: metadata, an embedding of (40, 64), tensors by shape as infos."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

from emel.gguf import TensorInfo, open_gguf
from emel.model.registry import find_architecture
from emel.tensor.types import TensorType
from model.gguf_writing import add_keys, finish

if TYPE_CHECKING:
    from pathlib import Path

KEYS: dict[str, object] = {
    "context_length": 128,
    "embedding_length": 64,
    "block_count": 3,
    "feed_forward_length": 96,
    "attention.head_count": 2,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "attention.layer_norm_epsilon": 1e-5,
    "rope.dimension_count": 32,
}
EXPERT_KEYS: dict[str, object] = {
    "expert_count": 8,
    "expert_used_count": 2,
    "expert_feed_forward_length": 32,
    "logit_scale": 1.0,
    "shortconv.l_cache": 3,
}


def info(name: str, *shape: int, offset: int = 0, type_: TensorType = TensorType.F32) -> TensorInfo:
    """A tensor that no file has."""
    return TensorInfo(name, shape, type_, offset, type_.n_bytes(int(np.prod(shape[:-1])), shape[-1]))


def parameters_of(folder: Path, architecture: str, *tensors: TensorInfo, **keys: object) -> Any:
    """What the architecture reads of a file with these keys besides KEYS (`a__b` stands for `a.b`; None: without)."""
    path = folder / "described.gguf"
    writer = gguf.GGUFWriter(path, architecture)
    all_keys = KEYS | {key.replace("__", "."): value for key, value in keys.items()}
    add_keys(writer, {f"{architecture}.{key}": value for key, value in all_keys.items()})
    writer.add_tensor("token_embd.weight", np.zeros((40, 64), np.float32))
    finish(writer)
    with open_gguf(path) as file:
        seen = dict(file.tensors) | {each.name: each for each in tensors}
        return find_architecture(architecture).read_parameters(file.metadata, seen)


def shapes_of(architecture: str, parameters: Any) -> dict[str, tuple[int, ...]]:
    """Tensor name -> shape that the architecture expects."""
    return {each.name: each.shape for each in find_architecture(architecture).expected_tensors(parameters)}
