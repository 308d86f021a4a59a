"""Reads a GGUF with the `gguf` package: metadata, and weights dequantised as the formats define."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
from gguf.quants import dequantize

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike

    from numpy.typing import NDArray


class Weights:
    """Every tensor of a GGUF by name, as float64 of the file's own (dequantised) values; `key` reads its metadata.

    Dequantised once to float32, which is exact for every format read here; each use converts to float64, so the
    memory held stays at four bytes a weight.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        reader = gguf.GGUFReader(path)
        self._fields = reader.fields
        self.architecture: str = self._fields["general.architecture"].contents()
        self._tensors: dict[str, NDArray[np.float32]] = {
            tensor.name: np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
            for tensor in reader.tensors
        }

    def key(self, name: str, default: Any = None) -> Any:
        """The metadata `<architecture>.<name>`; KeyError when it is missing and there is no default."""
        field = self._fields.get(f"{self.architecture}.{name}")
        if field is None and default is None:
            raise KeyError(f"{self.architecture}.{name} is not in the file")
        return default if field is None else field.contents()

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

    def stored(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """What a cache gives back of keys or values x: here x itself."""
        return x


class CachedWeights(Weights):
    """The same, but `stored` gives what an engine's KV cache holds, once it is sure that it is x rounded to float16.

    An engine computes x in float32, so near the middle between two float16 values it may round the other way than
    float64 would; that is no error of its own, and must not hide those that are. `cached`: (n_tokens, heads, head_dim)
    keys, then values, of each layer.
    """

    def __init__(self, path: str | PathLike[str], cached: Iterable[NDArray[np.float16]]) -> None:
        super().__init__(path)
        self._cached = iter(cached)

    def stored(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """What the engine holds of x; AssertionError unless it is a rounding of x, or of a number very near."""
        held = next(self._cached).astype(np.float64)
        largest = np.abs(x).max(axis=(-1, -2), keepdims=True)
        allowed = np.abs(x) * 2.0**-11 + 2.0**-25 + 1e-5 * largest
        assert held.shape == x.shape, f"the cache holds {held.shape}, the reference {x.shape}"
        assert (np.abs(held - x) <= allowed).all(), (
            f"the cache is {np.abs(held - x).max()} off, at most {largest.max()}"
        )
        return held
