"""The errors EMEL's Python API raises on purpose: each is one line that says what was seen and what is allowed.

The packages below the engine stand alone and have errors of their own (GgufError, ChatTemplateError ...): the API wraps
them in one of these, with the original as `__cause__`. Only `emel.load` lets MemoryError through as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emel.engine.results import Completion


class EmelError(Exception):
    """Base of every error of EMEL's Python API; `hint`, when there is one, says what to do next.

    A traceback shows it under the message.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")


class ModelNotFoundError(EmelError):
    """No file and no known name answers to the model that was asked for."""


class ModelFetchError(EmelError):
    """A model could not be fetched, or what arrived is not the file that was promised."""


class ModelLoadError(EmelError, ValueError):
    """The file is there but no model EMEL can run: it is damaged, or of a kind that is not supported."""


class ModelReadError(EmelError, OSError):
    """The file is there but the system does not let it be read."""


class RequestError(EmelError, ValueError):
    """A request asks for something outside what the model or its session allows. `param`: the keyword it is about."""

    def __init__(self, message: str, *, hint: str | None = None, param: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.param = param


class ModelClosedError(RequestError):
    """The model was closed before the request, or while it ran."""


class PromptsFailedError(RequestError):
    """Some of many prompts failed. `results` has one entry for each, in order: a Completion, or what it failed with."""

    def __init__(self, message: str, results: Sequence[Completion | Exception]) -> None:
        super().__init__(message, hint="error.results has the completions of the others")
        self.results = results
