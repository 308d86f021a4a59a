"""Multipliers that keep activations of one size at every width (https://arxiv.org/abs/2203.03466): Granite's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.lazy_dataclasses import dataclass
from emel.model.parameters import non_negative_float, positive_float

if TYPE_CHECKING:
    from emel.gguf import Metadata


@dataclass(frozen=True, slots=True)
class Multipliers:
    """What is multiplied: embeddings, attention scores, what blocks add to the residual stream, logits."""

    embedding: float
    scores: float
    residual: float
    logits: float


def read_multipliers(metadata: Metadata, name: str, head_dim: int) -> Multipliers:
    """From the metadata of architecture `name`; 0 and no key at all mean the usual value. ModelError names a key.

    `logit_scale` is a divisor, and must be there.
    """
    return Multipliers(
        embedding=non_negative_float(metadata, f"{name}.embedding_scale", 0.0) or 1.0,
        scores=non_negative_float(metadata, f"{name}.attention.scale", 0.0) or head_dim**-0.5,
        residual=non_negative_float(metadata, f"{name}.residual_scale", 0.0) or 1.0,
        logits=1.0 / positive_float(metadata, f"{name}.logit_scale"),
    )
