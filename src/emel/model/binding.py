"""The tensors of a file as the weights of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.kernel.dequantize import dequantize

if TYPE_CHECKING:
    from array import array
    from collections.abc import Mapping

    from emel.gguf import GgufFile, TensorInfo
    from emel.graph.builder import GraphBuilder
    from emel.graph.ops import Value, Weight


class FileWeights:
    """Declares a file's tensors to a builder, by name; KeyError for one the file does not have."""

    def __init__(self, builder: GraphBuilder, tensors: Mapping[str, TensorInfo]) -> None:
        self._builder = builder
        self._tensors = tensors

    def matrix(self, name: str) -> Weight:
        """A packed matrix."""
        info = self._tensors[name]
        return self._builder.matrix(name, info.rows, info.cols, info.type)

    def vector(self, name: str) -> Weight:
        """A plain float32 vector, whatever its type in the file."""
        return self._builder.vector(name, self._tensors[name].n_values)

    def linear(self, x: Value, name: str) -> Value:
        """x times `name`.weight, plus `name`.bias where the file has one."""
        return self._builder.linear(x, self.matrix(f"{name}.weight"), self.bias(name))

    def expert_linear(self, x: Value, routing: Value, name: str) -> Value:
        """Rows grouped by expert times each one's matrix of `name`.weight, plus `name`.bias where the file has one."""
        return self._builder.expert_linear(x, routing, self.matrix(f"{name}.weight"), self.bias(name))

    def bias(self, name: str) -> Weight | None:
        """`name`.bias where the file has one."""
        bias = f"{name}.bias"
        return self.vector(bias) if bias in self._tensors else None


def read_vector(file: GgufFile, name: str) -> array[float]:
    """The values of a small tensor as float32."""
    info = file.tensors[name]
    with file.open_reader() as reader:
        return dequantize(info.type, reader.read(name), info.n_values)
