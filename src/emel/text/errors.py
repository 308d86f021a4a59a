"""What can keep a request from being answered."""

from __future__ import annotations


class GenerationError(ValueError):
    """A request that cannot be started or went wrong; one line that says what was seen and what is allowed."""


class NotFiniteError(GenerationError):
    """A value stopped being finite: the weights, or what computes with them, are broken."""
