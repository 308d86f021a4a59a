"""Matrices that adapters change: read as the file has them, and computed while weights are loaded."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from emel.kernel.loading import Computed
from emel.kernel.packing import Matrix

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emel.gguf import TensorInfo
    from emel.gguf.tensor_reader import TensorReader
    from emel.model.adapters import Merge
    from emel.model.loader import ModelDescription
    from emel.tensor.window_layout import Extent


def tensors_in_file(description: ModelDescription) -> dict[str, TensorInfo]:
    """All tensors as the file has them."""
    return {**description.tensors, **{name: merge.source for name, merge in description.merges.items()}}


def merged_matrices(description: ModelDescription, extents: Mapping[str, Extent], reader: TensorReader) -> Computed:
    """What adapters change; `reader` is of `tensors_in_file`."""
    merges = description.merges
    matrices = [Matrix(each.name, each.type, each.rows, each.cols) for each in map(extents.__getitem__, merges)]
    return Computed(matrices, partial(_read_merged, reader, merges))


def _read_merged(reader: TensorReader, merges: Mapping[str, Merge], name: str, target: memoryview) -> None:
    from emel.model.adapters import merge_into  # noqa: PLC0415 - few models have adapters, and NumPy takes time to import

    merge_into(reader, merges[name], target)
