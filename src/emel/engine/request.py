"""Request: one prompt, driven step by step by whoever reads its Stream."""

from __future__ import annotations

import os
import time
from threading import get_ident
from typing import TYPE_CHECKING

from emel.engine.failures import as_request_error
from emel.engine.results import Chunk, Completion, Timings
from emel.engine.session import Seat
from emel.text.generator import Advance, Begin, Cancel, GeneratorContext, GeneratorMachine, State
from emel.text.renderer import Renderer
from emel.text.sampler import Sampler

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from emel.engine.session import Session
    from emel.text.sampling import SamplingParams

_BEGIN, _ADVANCE, _CANCEL = Begin(), Advance(), Cancel()
_TERMINAL = tuple(GeneratorMachine.TERMINAL)  # found by identity; hashing a member of an Enum is a call in Python
_REASONS = {State.STOPPED: "stop", State.LENGTH: "length", State.CANCELLED: "cancelled"}


class Request:
    """A prompt and what becomes of it. `advance` and `cancel` run in the session's turn, whatever thread it is."""

    def __init__(
        self, session: Session, prompt_ids: Sequence[int], params: SamplingParams, stops: Sequence[str] = ()
    ) -> None:
        self.session = session
        self._params = params if params.is_greedy else params.with_seed(_random_seed())
        self._context = GeneratorContext(
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
        self._machine = GeneratorMachine(self._context)
        self._seat = Seat(self._context)
        self._text: list[str] = []
        self._n_given = 0  # tokens that chunks have brought
        self._started = 0.0
        self._prefill_seconds = self._decode_seconds = self._first_token_at = 0.0
        self.completion: Completion | None = None
        """What came of it, once it is over and did not fail."""

    @property
    def is_queued(self) -> bool:
        """Whether it was not started."""
        return self._machine.state is State.QUEUED

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self._machine.state in _TERMINAL

    def start(self) -> None:
        """Takes a seat, waiting for one. RequestError when that cannot succeed."""
        self._started = time.perf_counter()
        self.session.admit(self._seat, self._begin)

    def advance(self) -> Chunk | None:
        """One step, and the chunk it gave if any, the last one with the completion. RequestError when it failed."""
        machine, context = self._machine, self._context
        if machine.state in _TERMINAL:  # another thread ended it
            return None
        self.session.check_open()
        self.session.check_process()
        self._seat.thread = get_ident()
        is_first = not context.token_ids
        begin = time.perf_counter()
        machine.dispatch(_ADVANCE)
        end = time.perf_counter()
        if is_first:
            self._prefill_seconds += end - begin
            self._first_token_at = end
        else:
            self._decode_seconds += end - begin
        if machine.state in _TERMINAL:
            return self._end()
        return self._chunk() if context.new_text else None

    def cancel(self) -> None:
        """Ends it where it stands; what it had given stays in its completion."""
        self._seat.is_wanted = False
        if self._machine.state not in _TERMINAL:
            self._machine.dispatch(_CANCEL)
            self._end()
        self.session.leave(self._seat)

    def _begin(self) -> None:
        """In a turn: opens the sequence."""
        self._machine.dispatch(_BEGIN)
        if self._machine.state is State.FAILED:
            self._end()

    def _chunk(self) -> Chunk:
        context, n_given = self._context, self._n_given
        self._n_given = len(context.token_ids)
        self._text.append(context.new_text)
        return Chunk(context.new_text, tuple(context.token_ids[n_given:]))

    def _end(self) -> Chunk:
        """Leaves the seat and says what came of it."""
        self.session.leave(self._seat)
        error = self._context.error
        if self._machine.state is State.FAILED:
            assert error is not None
            raise as_request_error(error) from error
        last = self._chunk()
        reason = _REASONS[self._machine.state]
        self.completion = self._completion(reason)
        return Chunk(last.text, last.token_ids, reason, self.completion)

    def _completion(self, reason: str) -> Completion:
        context = self._context
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


class Stream:
    """The chunks of one answer, computed as they are read: an iterator, and a context manager that closes it.

    The answer starts with the first read. Any thread may read or close it. A failed request raises RequestError.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._is_done = False

    @property
    def completion(self) -> Completion | None:
        """The whole answer once it is over, also when closed early ("cancelled"); None before and if it failed."""
        return self._request.completion

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Chunk:
        request = self._request
        request.session.check_process()  # before waiting for a turn: a fork may have none left to give
        try:
            if request.is_queued:
                request.start()
            run, advance = request.session.turns.run, request.advance
            while not request.is_over:
                chunk = run(advance)
                if chunk is not None:
                    return chunk
        except BaseException:
            self.close()
            raise
        self._is_done = True
        raise StopIteration

    def close(self) -> None:
        """Cancels what is left, once the step that may be running is over. Harmless when repeated."""
        if not self._is_done:
            session = self._request.session
            if not session.has_forked:  # the sequence is the parent's
                session.turns.soon(self._request.cancel)
            self._is_done = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_is_done", True):
            self.close()


def complete(request: Request) -> Completion:
    """Runs a request to its end."""
    for _ in Stream(request):
        pass
    assert request.completion is not None
    return request.completion


def _random_seed() -> int:
    """53 bits: every JSON number holds them."""
    return int.from_bytes(os.urandom(7), "little") >> 3
