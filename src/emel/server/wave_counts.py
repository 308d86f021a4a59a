"""What the waves of a model have counted since the server began: of each time it was loaded, and only ever more."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emel.engine.wave import Wave

_STREAMED = ("n_streamed_bytes", "streaming_wait_seconds")


class WaveCounts:
    """The counts of one served model, which is loaded and unloaded meanwhile."""

    def __init__(self) -> None:
        self._past: Counter[str] = Counter()
        self._before: Counter[str] = Counter()  # without the wave that ends
        self._wave: Wave | None = None

    def total(self) -> Counter[str]:
        """By name; 0 for what was not counted yet."""
        wave = self._wave
        return self._past if wave is None else _sum(self._past, _counted_by(wave) | _streamed_by(wave))

    def begin(self, wave: Wave) -> None:
        """The model is loaded."""
        self._wave = wave

    def begin_end(self) -> Wave | None:
        """It is about to be closed: no count goes back while that takes its time. The wave is for `end`."""
        wave, total = self._wave, self.total()
        self._before, self._past, self._wave = self._past, total, None
        return wave

    def end(self, wave: Wave | None) -> None:
        """It is closed: requests that it broke off are counted by now, and its weights are gone."""
        if wave is not None:
            streamed = {name: self._past[name] - self._before[name] for name in _STREAMED}
            self._past = _sum(self._before, _counted_by(wave) | streamed)


def _counted_by(wave: Wave) -> dict[str, float]:
    """All counters of a wave and its prefixes."""
    counters, prefixes = wave.counters, wave.prefixes
    counted = {each.name: getattr(of, each.name) for of in (counters, prefixes) for each in fields(of)}
    return counted | {"n_computed_prompt_tokens": counters.n_prompt_tokens - counters.n_cached_tokens}


def _streamed_by(wave: Wave) -> dict[str, float]:
    traffic = wave.traffic
    told = (0, 0) if traffic is None else (traffic.n_bytes, traffic.waited_seconds)
    return dict(zip(_STREAMED, told, strict=True))


def _sum(past: Counter[str], counted: dict[str, float]) -> Counter[str]:
    return Counter({name: past[name] + value for name, value in counted.items()})
