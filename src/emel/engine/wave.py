"""Wave: a look at the wave of a session from any thread, for metrics and pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.engine.request import Request
from emel.lazy_dataclasses import dataclass
from emel.memory.hybrid import HybridCache

if TYPE_CHECKING:
    from emel.engine.session import Session
    from emel.kernel.streaming import Traffic
    from emel.memory.prefix import PrefixCounters
    from emel.text.lanes import Lane, WaveCounters


@dataclass(frozen=True, slots=True)
class LaneView:
    """A request as it stands. `state`: queued, prefilling or decoding."""

    request_id: int
    state: str
    n_prompt: int
    n_computed: int
    """Tokens of the prompt and the answer that are in the memory."""
    n_tokens: int
    position: int
    """Of the next token that is computed."""


@dataclass(frozen=True, slots=True)
class WaveView:
    """The wave at a moment; taken while it goes on, so lanes may be a step apart."""

    lanes: tuple[LaneView, ...]
    waiting: tuple[LaneView, ...]
    """In the order of admission."""
    n_lanes: int
    """The most that run at a time."""
    n_blocks: int
    n_blocks_in_use: int
    """By lanes; blocks that only hold prefixes count as free."""
    n_steps: int
    n_tokens_of_last_step: int


class Wave:
    """The wave of a session."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def counters(self) -> WaveCounters:
        """What it has done so far: live numbers, only ever added to."""
        return self._session.wave.context.counters

    @property
    def prefixes(self) -> PrefixCounters:
        """What the reuse of prompts has done so far: live numbers, only ever added to."""
        memory = self._session.memory
        return memory.kv.counters if isinstance(memory, HybridCache) else memory.counters

    @property
    def traffic(self) -> Traffic | None:
        """What was read of weights that are streamed; None when all are in memory."""
        if not self._session.is_streaming:
            return None
        from emel.kernel.streaming import StreamedWeights

        weights = self._session.model.weights
        assert isinstance(weights, StreamedWeights)
        return weights.traffic()

    def snapshot(self) -> WaveView:
        """Plain data; waits for nothing."""
        context = self._session.wave.context
        memory = context.memory
        return WaveView(
            lanes=tuple(map(_view, tuple(context.lanes))),
            waiting=tuple(map(_view, context.waiting)),
            n_lanes=context.n_lanes,
            n_blocks=memory.n_blocks,
            n_blocks_in_use=memory.n_blocks - memory.free_blocks(),
            n_steps=context.counters.n_steps,
            n_tokens_of_last_step=context.batch.n_tokens,
        )


def _view(lane: Lane) -> LaneView:
    assert isinstance(lane, Request)
    generator = lane.generator.context
    return LaneView(
        request_id=lane.id,
        state=lane.generator.state.value,
        n_prompt=generator.n_prompt,
        n_computed=generator.n_computed,
        n_tokens=generator.n_tokens,
        position=generator.n_computed,
    )
