"""generate_many and chat_many: many prompts at once, their results in order, a bar on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sized
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from emel.engine.arguments import checked_request
from emel.engine.stream import EndListener
from emel.engine.submission import submit_all, with_constraint
from emel.errors import PromptsFailedError, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from emel.engine.request import Listener, Request
    from emel.engine.results import Completion
    from emel.engine.session import Session

PROMPTS_PER_LANE = 4
"""Prompts that are on their way at a time; the others wait where they come from."""


class Bar(Protocol):
    """What shows the progress (tqdm)."""

    def update(self, n: int, /) -> object:
        """So many more are done."""

    def close(self) -> None:
        """It stays as it is."""


class _Arrival(EndListener):
    """A listener that says which prompt is over, and how."""

    def __init__(self, index: int, arrived: SimpleQueue[tuple[int, Completion | Exception]]) -> None:
        self._index, self._arrived = index, arrived

    def on_end(self, completion: Completion) -> None:
        """Says so."""
        self._arrived.put((self._index, completion))

    def on_failure(self, error: Exception) -> None:
        """Says so."""
        self._arrived.put((self._index, error))


def run_many(submissions: Iterable[Callable[[Listener], Request]], n_at_once: int, bar: Bar | None) -> list[Completion]:
    """The completions in the order of their submissions.

    PromptsFailedError when some failed or were refused, with all results, once all are over. An interrupt cancels
    those that run.
    """
    results: dict[int, Completion | Exception] = {}
    running: dict[int, Request] = {}
    arrived: SimpleQueue[tuple[int, Completion | Exception]] = SimpleQueue()

    def take_one() -> None:
        index, result = arrived.get()
        running.pop(index, None)
        results[index] = result
        if bar is not None:
            bar.update(1)

    try:
        for index, submit in enumerate(submissions):
            while len(running) >= n_at_once:
                take_one()
            try:
                running[index] = submit(_Arrival(index, arrived))
            except RequestError as error:
                arrived.put((index, error))
        while running or not arrived.empty():
            take_one()
    finally:
        for request in running.values():
            request.cancel()
        if bar is not None:
            bar.close()
    return _in_order(results)


def _in_order(results: dict[int, Completion | Exception]) -> list[Completion]:
    ordered = [results[index] for index in range(len(results))]
    failed = [(index, result) for index, result in enumerate(ordered) if isinstance(result, Exception)]
    if failed:
        index, error = failed[0]
        raise PromptsFailedError(
            f"{len(failed)} of {len(ordered)} prompts failed; the first is prompt {index}: {error}", ordered
        ) from error
    return ordered  # type: ignore[return-value]


def new_bar(n_prompts: int | None, *, is_wanted: bool | None) -> Bar | None:
    """A bar on stderr; by default only if that is a terminal."""
    if is_wanted is False or (is_wanted is None and not sys.stderr.isatty()):
        return None
    from tqdm import tqdm

    bar: Bar = tqdm(total=n_prompts, unit="prompt", file=sys.stderr)
    return bar


def complete_many(
    session: Session,
    encode: Callable[[Any], Iterable[int]],
    prompts: Iterable[Any],
    options: Mapping[str, Any],
    *,
    progress: bool | None,
) -> list[Completion]:
    """The completions of all prompts, each encoded when its turn comes; progress: a bar (None: on a terminal)."""
    session.check_may_wait()
    constrained = dict(with_constraint(options, session))
    checked_request(constrained, session.tokenizer)

    def submit(prompt: object, listener: Listener) -> Request:
        return submit_all(session, encode(prompt), [listener], constrained)[0]

    n_prompts = len(prompts) if isinstance(prompts, Sized) else None
    submissions = (partial(submit, prompt) for prompt in prompts)
    return run_many(submissions, PROMPTS_PER_LANE * session.n_lanes, new_bar(n_prompts, is_wanted=progress))
