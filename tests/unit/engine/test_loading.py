"""Models that are loaded while the rest is imported: taken once, closed when nobody takes them, errors kept."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING, Any

import pytest

import emel
from emel.engine.loading import Preload
from emel.engine.options import LoadOptions
from emel.errors import ModelLoadError, RequestError

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS = LoadOptions(n_threads=1)


def test_a_model_is_taken_with_its_lanes(tiny_path: Path) -> None:
    with Preload(tiny_path, OPTIONS) as preload:
        threads, pool, model = preload.take()
    assert pool.n_lanes == threads.n_threads == 1
    assert model.parameters.n_layers == 1
    model.close()
    pool.close()


def test_a_model_that_nobody_takes_is_closed(tiny_path: Path) -> None:
    with Preload(tiny_path, OPTIONS) as preload:
        pass
    assert not [each for each in threading.enumerate() if each.name == "emel-load"]
    with pytest.raises(AssertionError):
        preload.take()


def test_what_kept_it_from_being_loaded_is_raised_where_it_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"GGUF")
    with Preload(path, OPTIONS) as preload, pytest.raises(ModelLoadError):
        preload.take()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"n_threads": 0}, "thread"),
        ({"n_ctx": -1}, "n_ctx is -1: it must be 0"),
        ({"isa": "mmx"}, "mmx"),
        ({"n_lanes": 0}, "n_lanes is 0"),
    ],
)
def test_arguments_are_refused_as_without_a_preload(tiny_path: Path, arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        emel.load(tiny_path, **arguments)
    assert not [each for each in threading.enumerate() if each.name == "emel-load"]


@pytest.mark.parametrize("was_enabled", [True, False])
def test_the_collector_rests_while_a_model_is_loaded(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch, *, was_enabled: bool
) -> None:
    seen = []

    def fails(*_arguments: object, **_options: object) -> None:
        seen.append(gc.isenabled())
        raise RequestError("no")

    monkeypatch.setattr("emel.engine.model.Model", fails)
    (gc.enable if was_enabled else gc.disable)()
    try:
        with pytest.raises(RequestError, match="no"):
            emel.load(tiny_path)
        assert seen == [False]
        assert gc.isenabled() is was_enabled
    finally:
        gc.enable()
