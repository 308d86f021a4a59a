"""Request: one prompt on its way through the wave, from the side of whoever submitted it."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Protocol, TypeVar

from emel.engine.failures import as_request_error
from emel.engine.results import Chunk, Completion, Timings
from emel.engine.stream import EndListener
from emel.engine.transcript import digest_of
from emel.text.generator import Cancel, GeneratorContext, GeneratorMachine, State
from emel.text.renderer import Renderer
from emel.text.sampler import Sampler
from emel.text.waiting import rank_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from emel.engine.session import Session
    from emel.text.constraint import Constraint
    from emel.text.lanes import Lane, WaveKey
    from emel.text.sampling import SamplingParams
    from emel.text.stop_strings import StopStrings

T = TypeVar("T")

_CANCEL = Cancel()
_REASONS = {State.STOPPED: "stop", State.LENGTH: "length", State.CANCELLED: "cancelled"}


class Listener(Protocol):
    """Hears of a request, on the compute thread between two steps: it must return at once and never wait.

    Exactly one of `on_end` and `on_failure` comes, once, and nothing after it. What `on_chunk` raises cancels the
    request.
    """

    def on_chunk(self, chunk: Chunk) -> None:
        """A piece of the answer. The last has the finish reason and the completion; `on_end` follows it."""

    def on_end(self, completion: Completion) -> None:
        """It is over: finished, or cancelled."""

    def on_failure(self, error: Exception) -> None:
        """It failed, with the error that the API raises for that."""


class Request:
    """A prompt and what becomes of it; a lane of the wave. `cancel` is for any thread, the rest for the wave."""

    def __init__(
        self,
        session: Session,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        listener: Listener,
        *,
        stops: StopStrings,
        cache_prompt: bool = True,
        priority: int = 0,
        constraint: Constraint | None = None,
        shown_controls: Iterable[str] = (),
        digests: bool = False,
        speculate: bool = True,
    ) -> None:
        """shown_controls: control tokens, by their text, that are part of the answer's text."""
        self.session = session
        self.id = session.next_arrival()
        self.rank = rank_of(self.id, priority)
        self.followers: list[Lane] = []
        self.key: WaveKey = session.key
        self._listener = listener
        self._makes_chunks = not isinstance(listener, EndListener)
        self._params = params if params.is_greedy else params.with_seed(random_seed())
        tokenizer = session.tokenizer
        context = GeneratorContext(
            ids=list(prompt_ids),
            n_prompt=len(prompt_ids),
            max_tokens=params.max_tokens,
            sampler=Sampler(
                self._params, session.n_vocab, prompt_ids=prompt_ids, end_ids=tokenizer.end_ids, constraint=constraint
            ),
            renderer=Renderer(stops),
            tokenizer=tokenizer,
            end_ids=tokenizer.end_ids.union(params.stop_token_ids),
            batch=session.batch,
            memory=session.memory,
            reuses_prefix=cache_prompt,
            wants_logprobs=params.logprobs is not None,
            digest=digest_of if digests else None,
            speculator=session.new_speculator() if speculate else None,
            shown_controls=frozenset(
                token for each in shown_controls if (token := tokenizer.vocabulary.find(each)) is not None
            ),
        )
        self.generator = GeneratorMachine(context)
        self._n_given = 0  # tokens that chunks have brought
        self._submitted_at = session.clock()
        self._admitted_at = self._first_token_at = self._ended_at = 0.0

    def cancel(self) -> None:
        """Ends it within one step, wherever it stands; returns at once. Harmless when repeated."""
        self.session.withdraw(self)

    @property
    def progress(self) -> tuple[int, int, int]:
        """Tokens of the prompt, those found computed, and those computed so far with them; for any thread."""
        context = self.generator.context
        return context.n_prompt, context.n_cached, min(context.n_computed, context.n_prompt)

    # ---- for the wave

    def admitted(self, now: float) -> None:
        """It has a lane."""
        self._admitted_at = self._admitted_at or now

    def publish(self, now: float) -> None:
        """Tells the listener what is new, and the end if it is over."""
        context, listener = self.generator.context, self._listener
        if not self._first_token_at and len(context.ids) > context.n_prompt:
            self._first_token_at = now
        if context.sequence is not None:
            if not self._makes_chunks:
                context.n_shown = len(context.text)
                return
            if self._tell(listener.on_chunk, self._chunk()):
                return
            self.generator.dispatch(_CANCEL)
        self._ended_at = now
        state = self.generator.state
        if state is State.FAILED:
            assert context.error is not None
            self._tell(listener.on_failure, failure(context.error))
            return
        reason = _REASONS[state]
        completion = self._completion(reason)
        if self._makes_chunks and state is not State.CANCELLED:
            self._tell(listener.on_chunk, self._chunk(reason, completion))
        self._tell(listener.on_end, completion)

    def refuse(self, error: Exception) -> None:
        """Tells the listener, and those of its followers, that it never came to the wave."""
        self._tell(self._listener.on_failure, error)
        for each in self.followers:
            assert isinstance(each, Request)
            each.refuse(error)

    # ---- inside

    def _tell(self, hear: Callable[[T], None], what: T) -> bool:
        """Whether the listener took it; an exception of its, SystemExit too, goes where those of threads go."""
        try:
            hear(what)
        except BaseException as error:
            threading.excepthook(
                threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
            )
            return False
        return True

    def _chunk(self, reason: str | None = None, completion: Completion | None = None) -> Chunk:
        context, n = self.generator.context, self._n_given
        self._n_given = n_tokens = context.n_tokens
        pieces = context.text
        text = pieces[-1] if len(pieces) == context.n_shown + 1 else "".join(pieces[context.n_shown :])
        context.n_shown = len(pieces)
        token_ids = tuple(context.ids[context.n_prompt + n : context.n_prompt + n_tokens])
        return Chunk(text, token_ids, reason, completion, context.logprobs[n:] if context.wants_logprobs else None)

    def _completion(self, reason: str) -> Completion:
        context, first, submitted = self.generator.context, self._first_token_at, self._submitted_at
        ended = self._ended_at
        admitted = min(self._admitted_at or ended, first or ended)  # n answers get their first token together
        timings = Timings(
            n_prompt_tokens=context.n_prompt,
            n_tokens=context.n_tokens,
            prefill_seconds=(first or ended) - admitted,
            decode_seconds=ended - first if first else 0.0,
            time_to_first_token=first - submitted if first else 0.0,
            queue_seconds=admitted - submitted,
            n_cached_tokens=context.n_cached,
        )
        return Completion(
            text="".join(context.text),
            token_ids=tuple(context.ids[context.n_prompt :]),
            finish_reason=reason,
            timings=timings,
            n_prompt_tokens=context.n_prompt,
            seed=self._params.seed or 0,
            sampling=self._params.effective(),
            n_cached_tokens=context.n_cached,
            n_draft_tokens=context.n_draft_tokens,
            n_accepted_tokens=context.n_accepted_tokens,
            logprobs=context.logprobs if context.wants_logprobs else None,
            digests=None if context.digest is None else tuple(context.digests),
            stop=context.stop,
        )


def failure(error: Exception) -> Exception:
    """The error that the API raises for a request that failed with another, its cause."""
    raised = as_request_error(error)
    if raised is not error:
        raised.__cause__ = error
    return raised


def random_seed() -> int:
    """53 bits: every JSON number holds them."""
    return int.from_bytes(os.urandom(7), "little") >> 3
