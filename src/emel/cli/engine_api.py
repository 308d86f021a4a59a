"""What the command line needs of the engine, and the one place where it gets it."""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from emel.cli.terminal import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence


class Timings(Protocol):
    """Where a request's time went; seconds, and tokens per second."""

    n_prompt_tokens: int
    n_tokens: int
    time_to_first_token: float

    @property
    def prefill_tokens_per_second(self) -> float: ...  # noqa: D102
    @property
    def decode_tokens_per_second(self) -> float: ...  # noqa: D102


class Completion(Protocol):
    """A finished answer."""

    text: str
    finish_reason: str
    seed: int
    timings: Timings


class Chunk(Protocol):
    """A piece of an answer; the last one carries the completion."""

    text: str
    completion: Completion | None


class Model(AbstractContextManager["Model"], Protocol):
    """A loaded model."""

    def stream(self, prompt: str, **sampling: object) -> Iterator[Chunk]:
        """The continuation of a raw prompt; closing the iterator cancels it."""

    def chat(self, messages: Sequence[Mapping[str, str]], *, stream: bool, **sampling: object) -> Iterator[Chunk]:
        """The assistant's next message; closing the iterator cancels it."""


def open_model(model: str | None, arguments: argparse.Namespace) -> Model:
    """Finds (and fetches) the model, and loads it with the session options of the command line."""
    from emel.cli.arguments import locate

    if arguments.isa is not None:
        _check_route(arguments.isa)
    path = locate(model, offline=arguments.offline, quiet=arguments.quiet)
    loaded: Model = importlib.import_module("emel").load(
        path, n_ctx=arguments.ctx_size, n_threads=arguments.threads, isa=arguments.isa
    )
    return loaded


def _check_route(name: str) -> None:
    from emel.kernel.features import choose_route

    try:
        choose_route(name)
    except ValueError as error:
        raise UsageError(f"argument --isa: {error}") from error
