"""Numbers from a file's metadata, with their ranges checked."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from emel.model.errors import ModelError

if TYPE_CHECKING:
    from emel.gguf import Metadata

MAX_LAYERS = 4096
_INT32_MAX = 2**31 - 1


def positive_int(metadata: Metadata, key: str, default: int | None = None, *, at_most: int = _INT32_MAX) -> int:
    """An integer from 1 to `at_most`; MetadataError when it is missing without a default, ModelError out of range."""
    value = metadata.get_int(key) if default is None else metadata.get_int(key, default)
    if not 1 <= value <= at_most:
        raise ModelError(f"metadata {key!r} is {value}: 1 to {at_most} are allowed")
    return value


def positive_float(metadata: Metadata, key: str, default: float | None = None) -> float:
    """A positive, finite number; MetadataError when it is missing without a default, ModelError out of range."""
    value = metadata.get_float(key) if default is None else metadata.get_float(key, default)
    if not (isfinite(value) and value > 0.0):
        raise ModelError(f"metadata {key!r} is {value}: it must be positive and finite")
    return value
