"""What a model will need of memory, from its description alone: nothing is packed, nothing allocated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from emel.graph.assembler import assemble
from emel.kernel.packing import weights_bytes
from emel.kernel.sizes import kv_bytes
from emel.model.tensors import Role, present
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emel.gguf import TensorInfo
    from emel.graph.capacity import Capacity
    from emel.model.loader import ModelDescription


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes by purpose; `kv` and `logits` are upper bounds, touched only as far as they are used."""

    weights: int
    kv: int
    arena: int
    logits: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.kv + self.arena + self.logits


def estimate_memory(description: ModelDescription, capacity: Capacity) -> MemoryEstimate:
    """For plans of `capacity`; ModelError or GraphError when the file is no model EMEL can run.

    Call `check_description` first: the tensors are taken to be those the architecture expects.
    """
    architecture, parameters, tensors = description.architecture, description.parameters, description.tensors
    expected = architecture.expected_tensors(parameters)
    vectors = [(TensorType.F32, info.n_values) for info in present(expected, tensors, Role.VECTOR)]
    derived = [
        (each.stored_type, each.n)
        for each in architecture.derived_vectors(parameters, description.file, parameters.n_ctx)
    ]
    matrices = [(info.type, info.rows, info.cols) for info in present(expected, tensors, Role.MATRIX)]
    assembly = assemble(lambda: architecture.build(parameters, tensors), capacity)
    heads = parameters.heads
    return MemoryEstimate(
        weights=weights_bytes(matrices, [*vectors, *derived]),
        kv=kv_bytes(parameters.n_kv_layers, capacity.n_blocks, heads.n_kv_heads, heads.head_dim, capacity.kv_type),
        arena=assembly.placement.n_bytes,
        logits=capacity.max_outputs * parameters.n_vocab * 4,
    )


def decode_bytes(tensors: Mapping[str, TensorInfo]) -> int | None:
    """Bytes of the file's weights that a decode step reads, of any architecture.

    All of them, but for an embedding matrix that is not the output matrix too. None with experts: only some are read.
    """
    if any("_exps." in name for name in tensors):
        return None
    idle = "token_embd.weight" if "output.weight" in tensors else None
    return sum(info.n_bytes for name, info in tensors.items() if name != idle)
