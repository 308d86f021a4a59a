"""Embeddings of texts: a plan that pools and the memory of one batch, and what callers ask of them.

Encoders make nothing else; of a model that writes text it is the rows behind its last norm that are pooled.

A text is computed whole, in one batch with others as far as they fit; its embedding does not depend on them. Lengths
are summed without rounding, so a normalised embedding is the same everywhere too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from emel.engine.arguments import checked_ids, checked_text
from emel.engine.failures import request_failures
from emel.errors import RequestError
from emel.graph.batch import Batch, KvBinding, Outputs, StateBinding
from emel.graph.capacity import Capacity
from emel.graph.reservation import ReservedGraph
from emel.kernel.buffers import address_of, int32_array
from emel.kernel.numerics import DEFAULT_ACTIVATIONS, Activations
from emel.kernel.sizes import KV_TYPES
from emel.memory.recurrent import RecurrentSlots
from emel.memory.sequences import blocks_for
from emel.memory.storage import KvGeometry, KvStorage
from emel.model.geometry import Geometry
from emel.model.pooling import Pooling
from emel.text.errors import NotFiniteError, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from emel.engine.session import Session
    from emel.kernel.pool import LanePool
    from emel.model.loader import LoadedModel
    from emel.model.registry import Parameters
    from emel.tensor.types import TensorType

MAX_TEXTS = 64
"""Texts of a batch."""
LEAST_TOKENS = 512
"""Tokens of a batch, where one text may have fewer."""


class Embedder:
    """Computes embeddings of texts of up to `n_ctx` tokens. One thread at a time; model and pool must outlive it."""

    def __init__(
        self,
        model: LoadedModel,
        pool: LanePool,
        route: int,
        *,
        pooling: Pooling,
        n_ctx: int,
        kv_type: TensorType = KV_TYPES[0],
        activations: Activations = DEFAULT_ACTIVATIONS,
    ) -> None:
        assert isinstance(model.parameters, Geometry)
        parameters = replace(model.parameters, pools=pooling)
        heads = parameters.heads
        self._pooling = pooling
        self._width = parameters.embedding_width
        self._stride = blocks_for(n_ctx)
        max_tokens = max(n_ctx, LEAST_TOKENS)
        n_blocks = blocks_for(max_tokens) + MAX_TEXTS  # the last block of each text may be almost empty
        self._table = int32_array(MAX_TEXTS * self._stride)
        geometry = KvGeometry(parameters.n_kv_layers, heads.n_kv_heads, heads.head_dim, kv_type)
        self._storage = KvStorage(geometry, n_blocks)
        binding = KvBinding(
            self._storage.address, self._storage.n_bytes, address_of(self._table), MAX_TEXTS, self._stride, kv_type
        )
        self._states = None if parameters.state is None else RecurrentSlots(MAX_TEXTS, parameters.state)
        capacity = Capacity(
            max_tokens,
            MAX_TEXTS,
            MAX_TEXTS,
            n_blocks,
            n_slots=0 if self._states is None else MAX_TEXTS,
            sequence_blocks=self._stride,
            kv_type=kv_type,
            activations=activations,
        )
        self._batch = Batch(capacity, self._width, binding, self._state_binding())
        self._graph = ReservedGraph(model.build_of(parameters), model.weights, capacity, pool=pool, route=route)

    def _state_binding(self) -> StateBinding | None:
        """A slot for each text, its own: what lies there does not matter to a first token."""
        if self._states is None:
            return None
        self._rows = int32_array(MAX_TEXTS)
        for row in range(MAX_TEXTS):
            self._rows[row] = row
        return StateBinding(self._states.address, self._states.n_bytes, address_of(self._rows), MAX_TEXTS)

    def batches(self, texts: Sequence[Sequence[int]]) -> Iterator[range]:
        """Which texts are computed together: consecutive ones, as many as fit."""
        begin = n_tokens = 0
        for index, ids in enumerate(texts):
            if index - begin == MAX_TEXTS or n_tokens + len(ids) > self._batch.capacity.max_tokens:
                yield range(begin, index)
                begin, n_tokens = index, 0
            n_tokens += len(ids)
        if begin < len(texts):
            yield range(begin, len(texts))

    def compute(self, texts: Sequence[Sequence[int]], out: NDArray[np.float32]) -> None:
        """Fills `out` (n_texts, embedding_width); the texts must fit a batch. NotFiniteError, SourceError."""
        batch = self._batch
        batch.clear()
        block = 0
        which = Outputs.FIRST if self._pooling is Pooling.CLS else Outputs.LAST
        for sequence, ids in enumerate(texts):
            for index in range(blocks_for(len(ids))):
                self._table[sequence * self._stride + index] = block
                block += 1
            batch.add(ids, 0, sequence, outputs=which)
        self._graph.compute(batch)
        end = 0
        for sequence, ids in enumerate(texts):
            out[sequence] = batch.logits(sequence)
            begin, end = end, end + len(ids)
            self._check_finite(
                out[sequence], min((each for each in batch.bad_layer[begin:end] if each >= 0), default=-1)
            )

    def _check_finite(self, row: NDArray[np.float32], bad_layer: int) -> None:
        if bad_layer >= 0 or not all(map(math.isfinite, row.tolist())):
            where = f"a value first stopped being finite in layer {bad_layer}" if bad_layer >= 0 else "in its last step"
            raise NotFiniteError(
                f"the embedding is not finite (NaN or infinity): {where}; the model file is likely damaged"
            )

    def close(self) -> None:
        """Gives plan and memory back; harmless when repeated."""
        self._graph.close()
        self._batch.close()
        self._storage.close()
        if self._states is not None:
            self._states.close()


def checked_texts(texts: object, session: Session) -> list[list[int]]:
    """Token ids of each text: from one text, one list of ids, or several of either. RequestError."""
    if isinstance(texts, str | bytes):
        texts = [texts]
    elif not isinstance(texts, Iterable):
        raise RequestError(f"the texts are of type {type(texts).__name__}: give a str, token ids, or a list of either")
    else:
        texts = list(texts)
        if texts and not isinstance(texts[0], str | bytes | Iterable):
            texts = [texts]
    return [_text_ids(text, index, session) for index, text in enumerate(texts)]


def _text_ids(text: object, index: int, session: Session) -> list[int]:
    if isinstance(text, str | bytes):
        ids = session.tokenizer.encode(checked_text(text, f"text {index}"), add_special=True, parse_special=False)
    else:
        ids = checked_ids(text, session.n_vocab)
    if not ids:
        raise RequestError(f"text {index} has no tokens: give at least one character")
    if len(ids) > session.n_ctx:
        raise RequestError(
            f"text {index} has {len(ids)} tokens: this model takes {session.n_ctx}",
            hint="embed parts of it, or load the model with a larger n_ctx if it allows one",
        )
    return ids


def checked_pooling(pooling: object, parameters: Parameters) -> Pooling:
    """The file's pooling for None, else the one named; RequestError."""
    known = ", ".join(repr(each.value) for each in Pooling)
    if pooling is None:
        if parameters.pooling is None:
            raise RequestError(
                f"this model writes text, and its file names no pooling for embeddings: give one of {known}",
                param="pooling",
                hint="pooling='mean' or 'last'; models made for embeddings, such as encoders, compare texts better",
            )
        return parameters.pooling
    try:
        return Pooling(pooling)
    except ValueError:
        allowed = f"it must be one of {known}, or None for the model's own"
        raise RequestError(f"pooling is {shown(pooling)}: {allowed}", param="pooling") from None


def normalized(row: Sequence[float]) -> list[float]:
    """The row divided by its Euclidean length, or as it is for a length of 0."""
    length = math.sqrt(math.fsum(each * each for each in row))
    return [each / length for each in row] if length else list(row)


class Embedders:
    """The embedders of a session, one for each pooling that was asked for."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._by_pooling: dict[Pooling, Embedder] = {}

    def embed(self, texts: object, pooling: object, normalize: bool) -> NDArray[np.float32]:
        """See Model.embed."""
        import numpy

        session = self._session
        parameters = session.model.parameters
        chosen = checked_pooling(pooling, parameters)
        ids = checked_texts(texts, session)
        width = parameters.embedding_width or parameters.d_model
        out = numpy.empty((len(ids), width), dtype=numpy.float32)
        with request_failures():
            embedder = session.between_steps(lambda: self._embedder(chosen))
            for batch in embedder.batches(ids):
                rows = slice(batch.start, batch.stop)
                session.between_steps(partial(embedder.compute, ids[rows], out[rows]))
        if normalize:
            for row in out:
                row[:] = normalized(row.tolist())
        return out

    def _embedder(self, pooling: Pooling) -> Embedder:
        """Made on first use."""
        session = self._session
        if pooling not in self._by_pooling:
            self._by_pooling[pooling] = Embedder(
                session.model,
                session.pool,
                session.route.isa,
                pooling=pooling,
                n_ctx=session.n_ctx,
                kv_type=session.batch.kv.kv_type,
                activations=session.activations,
            )
        return self._by_pooling[pooling]

    def close(self) -> None:
        """Gives all of them back; harmless when repeated."""
        for embedder in self._by_pooling.values():
            embedder.close()
        self._by_pooling.clear()
