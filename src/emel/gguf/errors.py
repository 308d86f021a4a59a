"""What a malformed GGUF file raises."""

from __future__ import annotations


class GgufError(ValueError):
    """The bytes are not a GGUF file EMEL reads: one line with what was seen, what is allowed, what to do."""


class MetadataError(GgufError):
    """A metadata key is missing or holds another type than asked for; the line names the key and both types."""


_SHOWN_CHARACTERS = 60


def quoted(name: str) -> str:
    """A key or name out of a file, made fit for one line of an error."""
    return repr(name) if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]!r}..."
