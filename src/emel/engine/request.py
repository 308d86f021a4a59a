"""Request: drives one generator machine step by step and keeps the time."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from emel.engine.results import Chunk, Completion, Timings
from emel.errors import RequestError
from emel.text.errors import GenerationError
from emel.text.generator import Advance, Begin, Cancel, GeneratorContext, GeneratorMachine, State
from emel.text.renderer import Renderer
from emel.text.sampler import Sampler

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emel.engine.session import Session
    from emel.text.sampling import SamplingParams

_BEGIN, _ADVANCE, _CANCEL = Begin(), Advance(), Cancel()
_REASONS = {State.STOPPED: "stop", State.LENGTH: "length", State.CANCELLED: "cancelled"}


class Request:
    """One prompt and what becomes of it. `chunks()` is read once, by one thread."""

    def __init__(
        self, session: Session, prompt_ids: Sequence[int], params: SamplingParams, stops: Sequence[str] = ()
    ) -> None:
        self._started = time.perf_counter()
        self._session = session
        self._params = params if params.is_greedy else params.with_seed(secrets.randbits(53))
        self._machine = GeneratorMachine(
            GeneratorContext(
                prompt_ids=prompt_ids,
                max_tokens=params.max_tokens,
                sampler=Sampler(self._params, session.n_vocab),
                renderer=Renderer(stops),
                tokenizer=session.tokenizer,
                graph=session.graph,
                batch=session.batch,
                cache=session.cache,
                chunk=session.chunk,
            )
        )
        self._text: list[str] = []
        self._prefill_seconds = self._decode_seconds = self._first_token_at = 0.0

    def chunks(self) -> Iterator[Chunk]:
        """Chunks with text as it becomes certain, then the last one. Closing the iterator cancels the request.

        RequestError when the request cannot start or fails.
        """
        machine, context = self._machine, self._machine.context
        n_given = 0
        with self._session.sequence():
            try:
                self._dispatch(_BEGIN)
                while machine.state not in GeneratorMachine.TERMINAL:
                    self._step()
                    new_text = context.new_text
                    if new_text and machine.state not in GeneratorMachine.TERMINAL:
                        self._text.append(new_text)
                        yield Chunk(new_text, tuple(context.token_ids[n_given:]))
                        n_given = len(context.token_ids)
            finally:
                if machine.state not in GeneratorMachine.TERMINAL:
                    self._dispatch(_CANCEL)
        if machine.state is State.FAILED:
            raise as_request_error(context.error)
        self._text.append(context.new_text)
        reason = _REASONS[machine.state]
        yield Chunk(context.new_text, tuple(context.token_ids[n_given:]), reason, self._completion(reason))

    def completion(self) -> Completion:
        """Runs to the end."""
        completion = None
        for chunk in self.chunks():
            completion = chunk.completion
        assert completion is not None
        return completion

    def _dispatch(self, event: Begin | Advance | Cancel) -> None:
        with self._session.step_lock:
            self._machine.dispatch(event)

    def _step(self) -> None:
        begin = time.perf_counter()
        n_before = len(self._machine.context.token_ids)
        self._dispatch(_ADVANCE)
        end = time.perf_counter()
        if n_before:
            self._decode_seconds += end - begin
        else:
            self._prefill_seconds += end - begin
            self._first_token_at = end

    def _completion(self, reason: str) -> Completion:
        context = self._machine.context
        n_tokens = len(context.token_ids)
        return Completion(
            text="".join(self._text),
            token_ids=tuple(context.token_ids),
            finish_reason=reason,
            timings=Timings(
                n_prompt_tokens=len(context.prompt_ids),
                n_tokens=n_tokens,
                prefill_seconds=self._prefill_seconds,
                decode_seconds=self._decode_seconds,
                time_to_first_token=self._first_token_at - self._started if n_tokens else 0.0,
            ),
            n_prompt_tokens=len(context.prompt_ids),
            seed=self._params.seed or 0,
            sampling=self._params.effective(),
        )


def as_request_error(error: Exception | None) -> Exception:
    """What a request ended with, as the API raises it."""
    if isinstance(error, GenerationError):
        return RequestError(str(error))
    return error if error is not None else RequestError("the request failed without a reason")
