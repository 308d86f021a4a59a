"""What can keep a request from being answered."""

from __future__ import annotations


class GenerationError(ValueError):
    """A request that cannot be started or went wrong; one line that says what was seen and what is allowed."""


class NotFiniteError(GenerationError):
    """A value stopped being finite: the weights, or what computes with them, are broken."""


def shown(value: object, n_most: int = 60) -> str:
    """A value as messages of errors show it: in one line, and not without end."""
    try:
        text = repr(value)
    except ValueError:  # a whole number of more digits than Python turns into text
        text = f"a {type(value).__name__} too long to show"
    return text if len(text) <= n_most else f"{text[:n_most]}..."
