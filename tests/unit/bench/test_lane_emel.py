from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import emel
from emel.bench.lane_emel import EmelEngine
from emel.bench.protocol import Ready, Timings

if TYPE_CHECKING:
    import pytest


class FakeModel:
    isa = "scalar"
    activations = "int16"
    n_vocab = 320
    wave = SimpleNamespace(traffic=None)

    def __init__(self) -> None:
        self.measured: list[tuple[list[int], int]] = []

    def measure(self, prompt_ids: list[int], n_decode: int) -> SimpleNamespace:
        self.measured.append((prompt_ids, n_decode))
        return SimpleNamespace(prefill_seconds=0.5, decode_seconds=1.5, time_to_first_token=0.5, stalled_seconds=0.25)


def test_lane_loads_with_the_given_threads_and_context_and_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FakeModel()
    loaded: list[tuple[str, dict[str, int]]] = []

    def load(path: str, **options: int) -> FakeModel:
        loaded.append((path, options))
        return model

    monkeypatch.setattr(emel, "load", load, raising=False)
    engine = EmelEngine("a.gguf", 2, 640)
    assert loaded == [("a.gguf", {"n_threads": 2, "n_ctx": 640, "activations": "int16", "memory": None})]
    assert engine.measure([1, 2], 3) == Timings(0.5, 1.5, stalled_seconds=0.25)
    assert model.measured == [([1, 2], 3)]
    ready = engine.describe()
    assert isinstance(ready, Ready)
    assert (ready.engine, ready.route, ready.n_vocab) == ("EMEL", "scalar", 320)
