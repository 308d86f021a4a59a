"""Errors of the packages below as those of the public API."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from emel.errors import EmelError, ModelLoadError, ModelReadError, RequestError
from emel.io.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def load_failures() -> Iterator[None]:
    """Whatever keeps a file from becoming a model leaves as ModelLoadError or ModelReadError (or MemoryError)."""
    try:
        yield
    except EmelError:
        raise
    except OSError as error:
        raise ModelReadError(str(error)) from error
    except (ValueError, RuntimeError) as error:
        raise ModelLoadError(str(error)) from error


@contextmanager
def request_failures() -> Iterator[None]:
    """Whatever is wrong with a request, or keeps its weights from being read, leaves as RequestError."""
    try:
        yield
    except EmelError:
        raise
    except (ValueError, RuntimeError, MemoryError, SourceError) as error:
        raise as_request_error(error) from error


def as_request_error(error: BaseException) -> EmelError:
    """What a request ended with, as the API raises it; set the original as its cause."""
    if isinstance(error, EmelError):
        return error
    if isinstance(error, MemoryError):
        return RequestError(
            f"not enough memory: {str(error) or 'the system has no more'}", hint="load with a smaller n_ctx"
        )
    return RequestError(str(error) or type(error).__name__)
