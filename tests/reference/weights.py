"""Reads a llama GGUF with the `gguf` package: hyperparameters, and weights dequantised as the formats define."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
from gguf.quants import dequantize

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """The numbers of a llama model, in the glossary's names."""

    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_model: int
    n_rot: int
    rope_base: float
    rope_scale: float
    norm_epsilon: float


class Weights:
    """Every tensor of a GGUF by name, as float64 of the file's own (dequantised) values.

    Dequantised once to float32, which is exact for every format read here; each use converts to float64, so the
    memory held stays at four bytes a weight.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        reader = gguf.GGUFReader(path)
        self.hyperparameters = _read_hyperparameters(reader)
        self._tensors: dict[str, NDArray[np.float32]] = {
            tensor.name: np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
            for tensor in reader.tensors
        }

    def has(self, name: str) -> bool:
        """Whether the file holds a tensor of this name."""
        return name in self._tensors

    def rows(self, name: str, indices: list[int]) -> NDArray[np.float64]:
        """Rows of a matrix, (len(indices), cols)."""
        return self._tensors[name][indices].astype(np.float64)

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        """A matrix (rows, cols) or a vector (n,)."""
        return self._tensors[name].astype(np.float64)

    def product(self, name: str, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """x (n_tokens, cols) times the transposed matrix: (n_tokens, rows)."""
        return x @ self[name].T

    def optional(self, name: str) -> NDArray[np.float64] | float:
        """The vector of this name, or 0.0: what a bias that is not there adds."""
        return self[name] if self.has(name) else 0.0


def _read_hyperparameters(reader: gguf.GGUFReader) -> Hyperparameters:
    def get(key: str, default: Any = None) -> Any:
        field = reader.fields.get(key)
        if field is None and default is None:
            raise KeyError(f"{key} is not in the file")
        return default if field is None else field.contents()

    architecture = get("general.architecture")
    if architecture != "llama":
        raise ValueError(f"the reference computes llama, the file holds {architecture}")
    d_model, n_heads = int(get("llama.embedding_length")), int(get("llama.attention.head_count"))
    head_dim = int(get("llama.attention.key_length", d_model // n_heads))
    scaling = get("llama.rope.scaling.type", "none")
    if scaling not in {"none", "linear"}:
        raise ValueError(f"the reference knows the RoPE scalings none and linear, the file says {scaling}")
    return Hyperparameters(
        n_layers=int(get("llama.block_count")),
        n_heads=n_heads,
        n_kv_heads=int(get("llama.attention.head_count_kv", n_heads)),
        head_dim=head_dim,
        d_model=d_model,
        n_rot=int(get("llama.rope.dimension_count", head_dim)),
        rope_base=float(get("llama.rope.freq_base", 10000.0)),
        rope_scale=float(get("llama.rope.scaling.factor", 1.0)) if scaling == "linear" else 1.0,
        norm_epsilon=float(get("llama.attention.layer_norm_rms_epsilon")),
    )
