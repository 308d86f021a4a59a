"""Reads a GGUF with the `gguf` package: metadata, and weights dequantised as the formats define."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
from gguf.quants import dequantize

if TYPE_CHECKING:
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
