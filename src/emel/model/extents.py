"""Where the matrices of a model lie in its files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.kernel.sizes import packed_bytes
from emel.model.tensors import Role, present
from emel.tensor.window_layout import Extent

if TYPE_CHECKING:
    from emel.model.loader import ModelDescription


def extents_of(description: ModelDescription) -> dict[str, Extent]:
    """Every matrix of a model: where it lies in its files, and how large it is packed."""
    expected = description.architecture.expected_tensors(description.parameters)
    infos = present(expected, description.tensors, Role.MATRIX)
    return {
        info.name: Extent(
            info.name,
            info.offset,
            info.n_bytes,
            info.rows,
            info.cols,
            info.type,
            packed_bytes(info.type, info.rows, info.cols),
            info.part,
        )
        for info in infos
    }
