"""Numbers from a file's metadata, with their ranges checked."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from emel.model.errors import ModelError

if TYPE_CHECKING:
    from emel.gguf import Metadata

MAX_LAYERS = 4096
_INT32_MAX = 2**31 - 1


def per_layer(
    metadata: Metadata, key: str, n_layers: int, default: int | None = None, *, at_least: int = 1
) -> tuple[int, ...]:
    """An integer for each layer, from an array or from one number for all; errors as of `positive_int`."""
    if not isinstance(metadata.get(key), memoryview):
        value = metadata.get_int(key) if default is None else metadata.get_int(key, default)
        values = (value,) * n_layers
    else:
        values = tuple(metadata.get_ints(key))
    if len(values) != n_layers:
        raise ModelError(f"metadata {key!r} has {len(values)} values: one for each of the {n_layers} layers is needed")
    for value in values:
        if not at_least <= value <= _INT32_MAX:
            raise ModelError(f"metadata {key!r} is {value}: {at_least} to {_INT32_MAX} are allowed")
    return values


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


def non_negative_int(metadata: Metadata, key: str, default: int) -> int:
    """An integer from 0, which turns off what it counts; ModelError out of range."""
    value = metadata.get_int(key, default)
    if not 0 <= value <= _INT32_MAX:
        raise ModelError(f"metadata {key!r} is {value}: 0 to {_INT32_MAX} are allowed")
    return value


def non_negative_float(metadata: Metadata, key: str, default: float) -> float:
    """A finite number from 0, which turns off what it scales; ModelError out of range."""
    value = metadata.get_float(key, default)
    if not (isfinite(value) and value >= 0.0):
        raise ModelError(f"metadata {key!r} is {value}: it must be finite, 0 or more")
    return value
