"""From the keywords of a call to requests of the wave."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from emel.engine.arguments import checked_prompt, checked_request
from emel.engine.failures import request_failures
from emel.engine.request import Request, random_seed
from emel.engine.stream import Ending
from emel.errors import RequestError
from emel.text.sampling import MAX_ANSWERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from emel.engine.request import Listener
    from emel.engine.results import Completion
    from emel.engine.session import Session
    from emel.text.sampling import SamplingParams

_N_SEEDS = 2**64


def submit_all(
    session: Session,
    prompt_ids: Iterable[int],
    listeners: Sequence[Listener],
    options: Mapping[str, Any],
    into: list[Request] | None = None,
) -> list[Request]:
    """A request for each listener, all of one prompt, which is computed once; returns at once.

    Request i draws by the seed plus i. RequestError for what is wrong, before anything is queued. `into` has the
    requests before they are submitted, so that whoever is interrupted on the way knows what to cancel.
    """
    session.check_open()
    session.check_generates()
    ids = checked_prompt(prompt_ids, session.n_vocab, session.n_ctx)
    params, stops, keywords = checked_request(options, session.tokenizer)
    if params.n != len(listeners):
        raise RequestError(
            f"n is {params.n}, and {len(listeners)} listens: every answer needs a listener",
            hint="ask for n answers with generate or chat",
        )
    if len(listeners) > 1 and keywords.get("constraint") is not None:
        raise RequestError("a constraint follows one answer, n asks for several: ask for them one by one")
    with request_failures():
        made = [
            Request(session, ids, each, listener, stops=stops, **keywords)
            for each, listener in zip(_seeded(params, len(listeners)), listeners, strict=True)
        ]
    requests = [] if into is None else into
    requests += made
    leader, *followers = made
    leader.followers.extend(followers)
    session.submit(leader)
    return requests


def complete(session: Session, prompt_ids: Iterable[int], options: Mapping[str, Any]) -> Completion:
    """The completion of a prompt, with all choices if several are asked for; waits, and cancels when interrupted."""
    session.check_may_wait()
    n = options.get("n", 1)
    endings = [Ending() for _ in range(n if isinstance(n, int) and 1 < n <= MAX_ANSWERS else 1)]  # others are refused
    requests: list[Request] = []
    try:
        submit_all(session, prompt_ids, endings, options, requests)
        first, *others = [ending.result() for ending in endings]
    except BaseException:
        for request in requests:
            request.cancel()
        raise
    return replace(first, choices=(first, *others)) if others else first


def _seeded(params: SamplingParams, n: int) -> list[SamplingParams]:
    if params.is_greedy or n == 1:
        return [params] * n
    seed = params.with_seed(random_seed()).seed
    assert seed is not None
    return [replace(params, seed=(seed + index) % _N_SEEDS) for index in range(n)]
