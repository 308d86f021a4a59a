"""Session: one loaded model wired up to compute. Everything is made here once; one step runs at a time.

A request takes a seat (a row of the KV cache) when it starts and leaves it when it ends; in between it takes turns with
the others. Whatever ends a step early, the next one finds rows and blocks in order.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Protocol

from emel.engine.arguments import checked_whole
from emel.engine.failures import load_failures, request_failures
from emel.engine.turns import Turns
from emel.errors import RequestError
from emel.graph.batch import Batch
from emel.graph.capacity import Capacity
from emel.graph.reservation import ReservedGraph
from emel.kernel.features import Route, choose_route
from emel.kernel.pool import LanePool
from emel.kernel.threads import ThreadChoice, choose_threads
from emel.memory.kv import KvCache
from emel.model.loader import LoadedModel, load_model
from emel.text.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_CONTEXT = 4096
"""Tokens of context when none is asked for and the model has as many."""
MAX_SEQUENCES = 8
PREFILL_CHUNK = 512
MAX_OUTPUTS = 64


new_gate = threading.Lock


class SequenceHolder(Protocol):
    """What sits on a seat: a generator's context, or anything else with a sequence of the cache."""

    sequence: int | None


class Seat:
    """A place among the requests that run: `thread` drove it last; nobody waits for one that is not `is_wanted`."""

    __slots__ = ("holder", "is_wanted", "thread")

    def __init__(self, holder: SequenceHolder) -> None:
        self.holder = holder
        self.is_wanted = True
        self.thread = 0


class Session:
    """Weights, plan, KV cache, batch, tokenizer and lanes of one model; at most MAX_SEQUENCES requests at a time.

    Errors: ModelLoadError, ModelReadError, RequestError (an argument out of its range), MemoryError.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        n_ctx: int | None = None,
        n_threads: int | None = None,
        isa: str | None = None,
    ) -> None:
        if n_ctx is not None and checked_whole(n_ctx, "n_ctx") < 0:
            raise RequestError(f"n_ctx is {n_ctx}: it must be 0 (all the model has) or more")
        with request_failures():
            self.route: Route = choose_route(isa)
            self.threads: ThreadChoice = choose_threads(
                None if n_threads is None else checked_whole(n_threads, "n_threads")
            )
            self.pool = LanePool(self.threads.n_threads)
        self._opened: list[LanePool | LoadedModel | KvCache | Batch | ReservedGraph] = [self.pool]
        try:
            with load_failures():
                self._build(path, n_ctx)
        except BaseException:
            self._give_back()
            raise
        self.turns = Turns(self._repair)
        self.seats: list[Seat] = []
        self.is_closed = False
        self._waiting: dict[threading.Lock, int] = {}  # gate -> the thread in front of it
        self._process = os.getpid()

    def _build(self, path: str | os.PathLike[str], n_ctx: int | None) -> None:
        self.model = load_model(path, self.pool)
        self._opened.append(self.model)
        parameters = self.model.parameters
        self.n_vocab = parameters.n_vocab
        self.n_ctx = context_size(n_ctx, parameters.n_ctx)
        self.cache = KvCache(
            n_kv_layers=parameters.n_kv_layers, heads=parameters.heads, n_ctx=self.n_ctx, max_sequences=MAX_SEQUENCES
        )
        self._opened.append(self.cache)
        self.chunk = min(PREFILL_CHUNK, self.n_ctx)
        capacity = Capacity(
            max_tokens=max(self.chunk, MAX_SEQUENCES),
            max_outputs=min(MAX_OUTPUTS, max(self.chunk, MAX_SEQUENCES)),
            max_sequences=MAX_SEQUENCES,
            n_blocks=self.cache.n_blocks,
        )
        self.batch = Batch(capacity, self.n_vocab, self.cache.binding)
        self._opened.append(self.batch)
        self.graph = ReservedGraph(self.model.build, self.model.weights, capacity, pool=self.pool, route=self.route.isa)
        self._opened.append(self.graph)
        self.tokenizer: Tokenizer = load_tokenizer(self.model.metadata, self.n_vocab)

    # ---- seats

    def admit(self, seat: Seat, begin: Callable[[], None]) -> None:
        """Waits until a sequence is free, takes the seat and calls `begin`, which opens the sequence.

        RequestError when waiting would never end: every sequence belongs to this thread, or to others that wait too.
        """
        self.check_process()
        gate = new_gate()
        gate.acquire()
        while not self.turns.run(lambda: self._try_admit(seat, begin, gate)):
            try:
                gate.acquire()
            except BaseException:
                self.turns.soon(lambda: self._waiting.pop(gate, None))
                raise

    def _try_admit(self, seat: Seat, begin: Callable[[], None], gate: threading.Lock) -> bool:
        """Whether there is nothing to wait for; else the gate opens when there may not be any more."""
        self.check_open()
        me = threading.get_ident()
        if not seat.is_wanted or seat in self.seats:
            return True
        if len(self.seats) < MAX_SEQUENCES:
            seat.thread = me
            self.seats.append(seat)
            begin()
            return True
        waiting = {me, *self._waiting.values()}
        if all(each.thread in waiting for each in self.seats):
            raise RequestError(
                f"{MAX_SEQUENCES} streams are unfinished, as many as a model runs at once, and the threads that read "
                "them wait for this one or for each other",
                hint="read one to its end, or close it",
            )
        self._waiting[gate] = me
        return False

    def leave(self, seat: Seat) -> None:
        """Gives the seat up, within a turn; harmless when repeated."""
        if seat in self.seats:
            self.seats.remove(seat)
        self._let_waiting_look()

    def _let_waiting_look(self) -> None:
        while self._waiting:
            self._waiting.popitem()[0].release()

    def check_open(self) -> None:
        """RequestError when the model was closed."""
        if self.is_closed:
            raise RequestError("this model is closed", hint="load it again with emel.load; close it after its requests")

    @property
    def has_forked(self) -> bool:
        """Whether this process is a fork of the one that loaded the model: it has its memory, but not its threads."""
        return self._process != os.getpid()

    def check_process(self) -> None:
        """RequestError in a process that forked from the one that loaded the model."""
        if self.has_forked:
            raise RequestError(
                "this model was loaded before the process forked: its threads did not come along",
                hint="load it in the process that uses it",
            )

    def _repair(self) -> None:
        self.cache.repair([each.holder.sequence for each in self.seats if each.holder.sequence is not None])

    # ---- life

    def close(self) -> None:
        """Gives everything back as soon as no step runs; requests that are not done fail. Harmless when repeated."""
        self.turns.run(self._close)

    def _close(self) -> None:
        self.is_closed = True
        self._give_back()
        self._let_waiting_look()

    def _give_back(self) -> None:
        """Last made first."""
        while self._opened:
            self._opened.pop().close()


def context_size(requested: int | None, trained: int) -> int:
    """The session's context: what was asked for, capped by nothing but sense; by default at most DEFAULT_CONTEXT."""
    if requested is None:
        return min(DEFAULT_CONTEXT, trained)
    if requested == 0:
        return trained
    if not 1 <= requested <= trained:
        raise RequestError(
            f"n_ctx is {requested}: this model allows 1 to {trained} (0: all of it)",
            hint="a longer context than the model was trained for gives worse answers, not longer memory",
        )
    return requested
