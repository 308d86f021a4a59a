"""Drafter: a second, smaller model that guesses for a session's requests (emel.text.speculation_model)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from emel.engine.memory import bindings, capacity_for, open_memory
from emel.errors import RequestError
from emel.gguf import StringArray
from emel.graph.batch import Batch
from emel.graph.reservation import ReservedGraph
from emel.model.loader import load_model
from emel.text.speculation_model import DraftModel, ModelSpeculator

if TYPE_CHECKING:
    import os

    from emel.engine.budget import SessionSizes
    from emel.engine.session import Session
    from emel.memory.hybrid import HybridCache
    from emel.memory.kv import KvCache
    from emel.model.loader import LoadedModel

_TOKENS = "tokenizer.ggml.tokens"


class Drafter:
    """Weights, plan and memory of a draft model, on the lanes of the session it guesses for.

    RequestError for a model that cannot guess for the session's, and when loading fails as that of any model does.
    """

    def __init__(self, session: Session, path: str | os.PathLike[str], sizes: SessionSizes) -> None:
        self._opened: list[LoadedModel | KvCache | HybridCache | Batch | ReservedGraph] = []
        try:
            n_ctx = min(session.n_ctx, sizes.n_ctx)
            model = load_model(path, session.pool, n_ctx=n_ctx)
            self._opened.append(model)
            _check(model, session)
            parameters, n_rows = model.parameters, session.n_lanes
            n_ctx = min(n_ctx, parameters.n_ctx)
            memory = open_memory(parameters, n_ctx=n_ctx, n_rows=n_rows, n_blocks=sizes.n_blocks)
            self._opened.append(memory)
            n_tokens = max(min(sizes.chunk, n_ctx), n_rows)
            capacity = capacity_for(
                memory, max_tokens=n_tokens, max_outputs=1, n_rows=n_rows, activations=session.activations
            )
            batch = Batch(capacity, parameters.n_vocab, *bindings(memory))
            self._opened.append(batch)
            graph = ReservedGraph(model.build, model.weights, capacity, pool=session.pool, route=session.route.isa)
            self._opened.append(graph)
        except BaseException:
            self.close()
            raise
        self.memory = memory
        self._model = DraftModel(graph, batch, memory, time.perf_counter)

    def speculator(self) -> ModelSpeculator:
        """What guesses for one request."""
        return ModelSpeculator(self._model)

    def close(self) -> None:
        """Gives everything back, last made first; harmless when repeated."""
        while self._opened:
            self._opened.pop().close()


def _check(model: LoadedModel, session: Session) -> None:
    name, parameters = model.description.name, model.parameters
    if parameters.embedding_width:
        raise RequestError(f"the draft model ({name}) is an encoder: it guesses no tokens")
    ours, theirs = session.model.metadata.get(_TOKENS), model.metadata.get(_TOKENS)
    if parameters.n_vocab != session.n_vocab:
        raise RequestError(
            f"the draft model has {parameters.n_vocab} tokens, the model {session.n_vocab}: "
            "a draft model needs the same vocabulary"
        )
    if not (isinstance(ours, StringArray) and isinstance(theirs, StringArray) and ours.raw == theirs.raw):
        raise RequestError(
            f"the draft model ({name}) has as many tokens as the model, but others: it needs the same vocabulary"
        )
