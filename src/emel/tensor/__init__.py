"""Tensor types and their block geometry."""

from emel.tensor.types import TensorType, TensorTypeError

__all__ = ["TensorType", "TensorTypeError"]
