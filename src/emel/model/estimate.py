"""What a decode step reads of a model, from its tensor list alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emel.gguf import TensorInfo


def decode_bytes(tensors: Mapping[str, TensorInfo]) -> int | None:
    """Bytes of the file's weights that a decode step reads, of any architecture.

    All of them, but for an embedding matrix that is not the output matrix too. None with experts: only some are read.
    """
    if any("_exps." in name for name in tensors):
        return None
    idle = "token_embd.weight" if "output.weight" in tensors else None
    return sum(info.n_bytes for name, info in tensors.items() if name != idle)
