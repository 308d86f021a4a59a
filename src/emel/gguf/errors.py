"""What a malformed GGUF file raises."""

from __future__ import annotations


class GgufError(ValueError):
    """The bytes are not a GGUF file EMEL reads: one line with what was seen, what is allowed, what to do."""


class MetadataError(GgufError):
    """A metadata key is missing or holds another type than asked for; the line names the key and both types."""
