"""From the keywords of a call to requests of the wave."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from emel.engine.arguments import CONSTRAINTS, checked_prompt, checked_request
from emel.engine.callbacks import checked_constraint, checked_constraint_maker
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
    params, stops, keywords = checked_request(with_constraint(options, session), session.tokenizer)
    new_constraint = checked_constraint_maker(keywords.pop("new_constraint", None))
    if params.n != len(listeners):
        raise RequestError(
            f"n is {params.n}, and {len(listeners)} listens: every answer needs a listener",
            hint="ask for n answers with generate or chat",
        )
    with request_failures():
        made = [
            Request(
                session,
                ids,
                each,
                listener,
                stops=stops,
                constraint=None if new_constraint is None else checked_constraint(new_constraint()),
                **keywords,
            )
            for each, listener in zip(_seeded(params, len(listeners)), listeners, strict=True)
        ]
    requests = [] if into is None else into
    requests += made
    leader, *followers = made
    leader.followers.extend(followers)
    session.submit(leader)
    return requests


def is_constrained(options: Mapping[str, Any]) -> bool:
    """Whether something has to be compiled for a request with these keywords, which may take a while."""
    return any(options.get(name) is not None for name in CONSTRAINTS)


def with_constraint(options: Mapping[str, Any], session: Session) -> Mapping[str, Any]:
    """The keywords with what makes a constraint for each answer in place of what names one. RequestError."""
    if not any(name in options for name in CONSTRAINTS):
        return options
    from emel.engine.constraints import made_constraint

    return made_constraint(options, session.tokenizer, session.n_vocab)


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
