"""A file of two mixtures: matrices of six experts, as they must lie in memory."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

from emel.io.parts import FilePart
from emel.kernel.packing import Matrix, pack
from emel.kernel.pool import LanePool
from emel.kernel.sizes import packed_bytes
from emel.kernel.sparse_experts import ExpertGroup
from emel.tensor.types import TensorType
from emel.tensor.window_layout import Extent

if TYPE_CHECKING:
    from pathlib import Path

N_EXPERTS = 6
SHAPES = ((32, 256), (256, 32))  # of one expert: two pages and a little when packed
Q8 = TensorType.Q8_0


class ExpertFile:
    """`groups` say where the experts lie; `packed` what each matrix is in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.groups: list[ExpertGroup] = []
        self.packed: dict[str, bytes] = {}
        rng = np.random.default_rng(1)
        content = bytearray(100)
        matrices = []
        for layer in range(2):
            extents = []
            for at, (rows, cols) in enumerate(SHAPES):
                name, n_rows = f"{layer}.{at}", rows * N_EXPERTS
                data = rng.integers(0, 256, Q8.n_bytes(n_rows, cols), dtype=np.uint8).tobytes()
                packed = packed_bytes(Q8, n_rows, cols)
                extents.append(Extent(name, len(content), len(data), n_rows, cols, Q8, packed))
                matrices.append(Matrix(name, Q8, n_rows, cols, data))
                content += data
            self.groups.append(ExpertGroup(N_EXPERTS, 2, tuple(extents)))
        path.write_bytes(content)
        self.parts = (FilePart(str(path), len(content)),)
        with LanePool(1) as pool:
            weights = pack(pool, matrices)
            for matrix in matrices:
                location = weights.locate(matrix.name)
                self.packed[matrix.name] = ctypes.string_at(location.address, location.n_bytes)
            weights.close()
