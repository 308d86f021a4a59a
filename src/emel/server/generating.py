"""What every generating endpoint does: a prompt that fits, a place in the line, usage and timings of the answer."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from typing import TYPE_CHECKING, Any, TypeVar

from emel.engine.arguments import checked_request
from emel.engine.transcript import record
from emel.lazy_dataclasses import dataclass
from emel.server.choices import Choices
from emel.server.connection import unless_gone
from emel.server.errors import ApiError, invalid, too_long

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.requests import Request

    from emel.engine.model import Model
    from emel.engine.results import Completion
    from emel.server.choices import Answer, Job
    from emel.server.metrics import Metrics
    from emel.server.served_model import ServedModel
    from emel.server.settings import Settings
    from emel.server.shapes import ConstrainedShape

S = TypeVar("S", bound="ConstrainedShape")
T = TypeVar("T")
_numbers = itertools.count(1)
_process = os.urandom(6).hex()


@dataclass(frozen=True, slots=True)
class Head:
    """What all parts of a response have in common."""

    id: str
    kind: str
    created: int
    model: str
    fingerprint: str

    def fields(self) -> dict[str, Any]:
        """The first fields of a response or chunk."""
        return {
            "id": self.id,
            "object": self.kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }


def new_id(prefix: str) -> str:
    """An id that no other response has."""
    return f"{prefix}{_process}{next(_numbers):08x}"


def new_head(prefix: str, kind: str, served: ServedModel) -> Head:
    """The head of a new response."""
    return Head(new_id(prefix), kind, int(time.time()), served.name, served.fingerprint)


def check_length(prompt_ids: Sequence[int], model: Model) -> None:
    """ApiError 400 for a prompt that does not fit."""
    if len(prompt_ids) > model.n_ctx:
        raise too_long(len(prompt_ids), model.n_ctx, model.n_ctx_train)


def check_count(request: Request, served: ServedModel, n_answers: int) -> None:
    """ApiError 400 for more answers than could ever run and wait."""
    n_most = served.model.wave.snapshot().n_lanes + request.app.state.settings.max_waiting
    if n_answers > n_most:
        raise invalid(f"the request asks for {n_answers} answers: this server takes {n_most} at a time", "n")


def check_options(served: ServedModel, options: Mapping[str, Any]) -> None:
    """RequestError for what is wrong with a request's keywords; for a thread.

    Some take a while to check the first time, as what is looked for in every token. Afterwards that is known.
    """
    checked_request(options, served.model.tokenizer)


def begin(request: Request, served: ServedModel, jobs: Sequence[Job]) -> Choices:
    """Submits answers; ApiError 429 when too many wait, 400 for a prompt that does not fit."""
    settings: Settings = request.app.state.settings
    model = served.model
    n_answers = sum(job.n for job in jobs)
    check_count(request, served, n_answers)
    for job in jobs:
        check_length(job.prompt_ids, model)
    n_lanes, n_taken = model.wave.snapshot().n_lanes, len(served.taken)  # the wave itself hears of them a step later
    if n_taken + n_answers > n_lanes + settings.max_waiting:
        raise ApiError(
            429,
            f"{n_taken} answers run or wait, and this request is for {n_answers}: this server runs {n_lanes} at a time "
            f"and lets {settings.max_waiting} wait (--max-waiting), so try again later",
            headers={"retry-after": "1"},
        )
    metrics: Metrics = request.app.state.metrics
    observers = [metrics.observer(served.name) for _ in range(n_answers)]
    return Choices(model, jobs, settings.request_timeout, observers, request.scope, taken=served.taken)


async def in_thread(request: Request, prepare: Callable[[ServedModel, S], T], served: ServedModel, shape: S) -> T:
    """What `prepare` returns, called in a thread: in one of a few where it may compile something, which may take long.

    So those who send what is hard to compile hold up only each other.
    """
    executor = request.app.state.compiling if shape.is_constrained else None
    return await asyncio.get_running_loop().run_in_executor(executor, prepare, served, shape)


async def whole(request: Request, choices: Choices) -> list[Answer]:
    """The whole answers; ClientGone, with all of them cancelled, when the client goes away first."""
    try:
        return await unless_gone(request, choices.all())
    finally:
        choices.close()


def usage(prompts: Sequence[Sequence[int]], answers: Sequence[Answer]) -> dict[str, Any]:
    """OpenAI's count of tokens: each prompt once, whose answers stand after each other."""
    n_prompt = sum(map(len, prompts))
    done = [answer.completion for answer in answers if answer.completion is not None]
    n_completion = sum(len(each.token_ids) for each in done)
    firsts = [each.completion for each in answers[:: len(answers) // len(prompts)] if each.completion is not None]
    used: dict[str, Any] = {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_completion,
        "total_tokens": n_prompt + n_completion,
        "prompt_tokens_details": {"cached_tokens": sum(each.n_cached_tokens for each in firsts)},
    }
    if n_reasoning := sum(each.n_reasoning_tokens for each in answers):
        used["completion_tokens_details"] = {"reasoning_tokens": n_reasoning}
    return used


def timings(completion: Completion) -> dict[str, Any]:
    """llama.cpp's timings, in milliseconds and tokens per second."""
    t = completion.timings
    n_prompt = t.n_prompt_tokens - t.n_cached_tokens
    prompt_ms, predicted_ms = 1e3 * t.prefill_seconds, 1e3 * t.decode_seconds
    return {
        "cache_n": t.n_cached_tokens,
        "prompt_n": n_prompt,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_ms / n_prompt if n_prompt else 0.0,
        "prompt_per_second": t.prefill_tokens_per_second,
        "predicted_n": t.n_tokens,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": predicted_ms / (t.n_tokens - 1) if t.n_tokens > 1 else 0.0,
        "predicted_per_second": t.decode_tokens_per_second,
        "queue_ms": 1e3 * t.queue_seconds,
        "ttft_ms": 1e3 * t.time_to_first_token,
    }


def settings_used(completion: Completion) -> dict[str, Any]:
    """The effective sampling values, with the seed that was really used."""
    return {**completion.sampling, "seed": completion.seed}


def transcript_of(
    model: Model, prompt_ids: Sequence[int], completion: Completion, *, is_constrained: bool
) -> dict[str, Any]:
    """What `emel verify` computes anew, of an answer whose request had its steps recorded."""
    return record(model, prompt_ids, completion, is_constrained=is_constrained).to_json()
