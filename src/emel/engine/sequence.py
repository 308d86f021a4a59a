"""OpenSequence: a sequence without a generator, for those who want numbers and no text."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from emel.engine.failures import request_failures
from emel.engine.results import Timings
from emel.engine.session import Seat
from emel.graph.batch import Outputs
from emel.text.generator import check_output

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from emel.engine.session import Session


class _Holder:
    """What the session knows of an OpenSequence, which so can be collected when an interrupt kept it from closing."""

    __slots__ = ("sequence",)

    def __init__(self) -> None:
        self.sequence: int | None = None


class OpenSequence:
    """A seat and an empty sequence of the session while its `with` lasts; `compute` and `measure` need the turn."""

    _is_left = True

    def __init__(self, session: Session) -> None:
        self._session = session
        self._holder = _Holder()
        self._seat = Seat(self._holder)

    @property
    def sequence(self) -> int:
        """The sequence of the session's cache."""
        assert self._holder.sequence is not None
        return self._holder.sequence

    def __enter__(self) -> Self:
        self._is_left = False
        try:
            self._session.admit(self._seat, self._open)
        except BaseException:
            self._session.turns.soon(self._close)
            raise
        return self

    def __del__(self) -> None:
        if not self._is_left:  # an interrupt came at the very beginning of __exit__
            self._session.turns.soon(self._close)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.turns.soon(self._close)

    def compute(self, ids: list[int], outputs: Outputs) -> None:
        """Appends tokens and computes them; the outputs are in the session's batch. RequestError when they failed."""
        session = self._session
        session.check_open()
        batch = session.batch
        batch.clear()
        with request_failures():
            batch.add(ids, session.cache.reserve(self.sequence, len(ids)), self.sequence, outputs=outputs)
            session.graph.compute(batch)
            for output in range(batch.n_outputs):
                check_output(batch, output)

    def measure(self, ids: list[int], n_decode: int) -> Timings:
        """Seconds of a prefill of `ids` and of `n_decode` greedy steps."""
        session = self._session
        session.check_open()
        cache, batch, graph, sequence = session.cache, session.batch, session.graph, self.sequence
        begin = time.perf_counter()
        for at in range(0, len(ids), session.chunk):
            is_last = at + session.chunk >= len(ids)
            self.compute(ids[at : at + session.chunk], Outputs.LAST if is_last else Outputs.NONE)
        first = time.perf_counter()
        with request_failures():
            for _ in range(n_decode):
                token = batch.argmax[0]
                batch.clear()
                batch.add_token(token, cache.reserve(sequence, 1), sequence)
                graph.compute(batch)
                if batch.argmax[0] < 0:
                    check_output(batch, 0)
        end = time.perf_counter()
        return Timings(len(ids), n_decode + 1, first - begin, end - first, first - begin)

    def _open(self) -> None:
        self._holder.sequence = self._session.cache.open()

    def _close(self) -> None:
        if self._holder.sequence is not None:
            self._session.cache.close_sequence(self._holder.sequence)
            self._holder.sequence = None
        self._session.leave(self._seat)
        self._is_left = True
