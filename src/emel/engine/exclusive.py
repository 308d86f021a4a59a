"""What the compute thread does between two steps for a caller who waits: an action, and numbers without text."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar

from emel.engine.failures import request_failures
from emel.engine.results import Timings
from emel.graph.batch import Outputs
from emel.text.generator import not_finite

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from emel.engine.session import Session

T = TypeVar("T")


class Exclusive(Generic[T]):
    """An action on its way to another thread, and its result on the way back."""

    def __init__(self, action: Callable[[], T]) -> None:
        self._action = action
        self._is_done = threading.Event()
        self._result: T
        self._error: BaseException | None = None
        self._is_wanted = True

    def run(self) -> None:
        """Calls the action, unless nobody waits any more."""
        try:
            if self._is_wanted:
                self._result = self._action()
        except BaseException as error:
            self._error = error
        self._is_done.set()

    def refuse(self, error: Exception) -> None:
        """Ends the wait with an error."""
        self._error = error
        self._is_done.set()

    def result(self) -> T:
        """What the action returned, or raises what it raised; waits for it."""
        try:
            self._is_done.wait()
        except BaseException:
            self._is_wanted = False
            raise
        if self._error is not None:
            raise self._error
        return self._result


class LoneSequence:
    """A sequence that has the batch to itself, for the time between two steps; a context manager.

    It begins with as much of `prefix` as earlier requests left, `n_found` tokens.
    """

    def __init__(self, session: Session, prefix: Sequence[int] = ()) -> None:
        self._session, self._prefix = session, prefix
        self.sequence = -1
        self.n_found = 0

    def __enter__(self) -> LoneSequence:
        memory, prefix = self._session.memory, self._prefix
        self.sequence, self.n_found = memory.open_with_prefix(prefix, reuse=bool(prefix))
        return self

    def __exit__(self, *_: object) -> None:
        self._session.memory.close_sequence(self.sequence)

    def compute(self, ids: list[int], outputs: Outputs) -> None:
        """Appends tokens and computes them; the outputs are in the session's batch. RequestError when they failed."""
        session, batch = self._session, self._session.batch
        batch.clear()
        with request_failures():
            (first,) = session.memory.reserve_all([(self.sequence, len(ids))])
            batch.add(ids, first, self.sequence, outputs=outputs)
            session.graph.compute(batch)
            for output in range(batch.n_outputs):
                if batch.argmax[output] < 0:
                    raise not_finite(batch, output, batch.n_tokens)


def all_logits(session: Session, ids: list[int], n_step: int, out: NDArray[np.float32]) -> None:
    """Fills `out` (n_tokens, n_vocab) with the logits of every position, `n_step` tokens at a time."""
    batch = session.batch
    with LoneSequence(session) as sequence:
        for begin in range(0, len(ids), n_step):
            sequence.compute(ids[begin : begin + n_step], Outputs.ALL)
            for row in range(batch.n_outputs):
                out[begin + row] = batch.logits(row)


def timed(session: Session, ids: list[int], n_decode: int) -> Timings:
    """Seconds of a prefill of `ids` and of `n_decode` greedy steps: plan runs in a bare loop."""
    memory, batch, graph = session.memory, session.batch, session.graph
    with LoneSequence(session) as lone:
        sequence = lone.sequence
        begin = time.perf_counter()
        for at in range(0, len(ids), session.chunk):
            is_last = at + session.chunk >= len(ids)
            lone.compute(ids[at : at + session.chunk], Outputs.LAST if is_last else Outputs.NONE)
        first, waited = time.perf_counter(), _waited_seconds(session)
        with request_failures():
            for _ in range(n_decode):
                token = batch.argmax[0]
                batch.clear()
                batch.add_token(token, memory.reserve_all([(sequence, 1)])[0], sequence)
                graph.compute(batch)
                if batch.argmax[0] < 0:
                    raise not_finite(batch, 0, 1)
        end, stalled = time.perf_counter(), _waited_seconds(session) - waited
    return Timings(len(ids), n_decode + 1, first - begin, end - first, first - begin, stalled_seconds=stalled)


def _waited_seconds(session: Session) -> float:
    """Seconds that the session's steps waited for weights so far."""
    if not session.is_streaming:
        return 0.0
    from emel.kernel.streaming import StreamedWeights

    weights = session.model.weights
    return weights.traffic().waited_seconds if isinstance(weights, StreamedWeights) else 0.0
