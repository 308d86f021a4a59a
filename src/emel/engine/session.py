"""Session: one loaded model wired up to compute. Everything is made here once; one step runs at a time."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

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
    import os
    from collections.abc import Iterator

DEFAULT_CONTEXT = 4096
"""Tokens of context when none is asked for and the model has as many."""
MAX_SEQUENCES = 8
PREFILL_CHUNK = 512
MAX_OUTPUTS = 64


class Session:
    """Weights, plan, KV cache, batch, tokenizer and lanes of one model.

    Sequences are handed out by `sequence()`, at most MAX_SEQUENCES at a time; steps run under `step_lock`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        n_ctx: int | None = None,
        n_threads: int | None = None,
        isa: str | None = None,
    ) -> None:
        self.route: Route = choose_route(isa)
        self.threads: ThreadChoice = choose_threads(n_threads)
        self.pool = LanePool(self.threads.n_threads)
        self._opened: list[LanePool | LoadedModel | KvCache | Batch | ReservedGraph] = [self.pool]
        try:
            self._build(path, n_ctx)
        except BaseException:
            self.close()
            raise
        self.step_lock = threading.Lock()
        self._free = threading.Condition()
        self._holders: list[int] = []  # thread of each open sequence

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
        self.tokenizer: Tokenizer = load_tokenizer(self.model.metadata)

    @contextmanager
    def sequence(self) -> Iterator[None]:
        """Waits until one more sequence may be opened. RequestError when only the caller's own could make room."""
        me = threading.get_ident()
        with self._free:
            while len(self._holders) >= MAX_SEQUENCES:
                if all(holder == me for holder in self._holders):
                    raise RequestError(
                        f"this thread has {MAX_SEQUENCES} unfinished streams, as many as a model runs at once",
                        hint="read one to its end, or close it",
                    )
                self._free.wait()
            self._holders.append(me)
        try:
            yield
        finally:
            with self._free:
                self._holders.remove(me)
                self._free.notify()

    def close(self) -> None:
        """Gives everything back, last made first; harmless when repeated."""
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
