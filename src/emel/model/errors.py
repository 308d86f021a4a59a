"""What the model package raises."""

from __future__ import annotations


class ModelError(ValueError):
    """A file that is sound GGUF but no model EMEL can run; the text says what was seen and what is allowed."""
