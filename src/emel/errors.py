"""The errors EMEL raises on purpose: each is one line that says what was seen and what is allowed.

A malformed file raises `emel.gguf.GgufError`, a ValueError of its own package, because the parser stands alone.
"""

from __future__ import annotations


class EmelError(Exception):
    """Base of every error of EMEL's Python API; `hint`, when there is one, says what to do next."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class ModelNotFoundError(EmelError):
    """No file and no known name answers to the model that was asked for."""


class ModelFetchError(EmelError):
    """A model could not be fetched, or what arrived is not the file that was promised."""


class RequestError(EmelError, ValueError):
    """A request asks for something outside what the model or its session allows."""
