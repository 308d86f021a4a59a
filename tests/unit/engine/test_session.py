from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import emel
from emel.engine.options import DEFAULT_CONTEXT, LoadOptions
from emel.engine.session import Session, context_size
from emel.errors import RequestError
from model.reference_error import reference_of, total_error
from reference.weights import Weights

if TYPE_CHECKING:
    from pathlib import Path


def test_context_size_defaults_to_the_smaller_of_ours_and_the_models() -> None:
    assert context_size(None, 100) == 100
    assert context_size(None, 1_000_000) == DEFAULT_CONTEXT
    assert context_size(0, 1_000_000) == 1_000_000
    assert context_size(7, 8) == 7


@pytest.mark.parametrize("requested", [9, -1])
def test_context_size_refuses_what_the_model_was_not_trained_for(requested: int) -> None:
    with pytest.raises(RequestError, match=rf"n_ctx is {requested}: this model allows 1 to 8") as caught:
        context_size(requested, 8)
    assert caught.value.hint is not None


def test_session_that_cannot_be_built_gives_everything_back(tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails at the first, second ... thing it makes, until nothing fails."""
    from emel.engine import session
    from emel.kernel.pool import LanePool
    from emel.model import loader

    made = [(session, name) for name in ("open_memory", "Batch", "ReservedGraph", "load_tokenizer")]
    for module, name in ((loader, "load_model"), *made):
        closed: list[object] = []
        with monkeypatch.context() as patch:
            patch.setattr(LanePool, "close", lambda self, closed=closed: closed.append(self))

            def fail(*_: object, **__: object) -> None:
                raise MemoryError("no more")

            patch.setattr(module, name, fail)
            with pytest.raises(MemoryError, match="no more"):
                Session(tiny_path, LoadOptions(n_threads=1))
        assert len(closed) == 1, name


def test_close_is_harmless_when_repeated(tiny_path: Path) -> None:
    session = Session(tiny_path, LoadOptions(n_threads=1))
    session.close()
    session.close()
    with pytest.raises(RequestError, match="this model is closed") as caught:
        session.check_open()
    assert caught.value.hint == "load it again with emel.load; close it after its requests"


def test_session_keeps_keys_and_values_as_asked(tiny_path: Path) -> None:
    """Logits of a Q8_0 cache are others than those of F16, near them, and the same in any chunks."""
    with emel.load(tiny_path, n_threads=1) as plain, emel.load(tiny_path, n_threads=1, kv_type="Q8_0") as small:
        ids = [5, 9, 2, 7] * 5
        exact, near = plain.logits(ids), small.logits(ids)
        assert not (exact == near).all()
        assert abs(exact - near).max() < 0.05 * abs(exact).max()
        assert (small.logits(ids, chunk=3) == near).all()


def test_session_with_float32_keys_and_values_is_nearer_to_the_reference(tiny_path: Path) -> None:
    ids = [5, 9, 2, 7] * 5
    exact = reference_of(Weights(tiny_path), ids)
    with emel.load(tiny_path, n_threads=1) as plain, emel.load(tiny_path, n_threads=1, kv_type="f32") as wide:
        logits = wide.logits(ids)
        error = total_error(logits, exact)
        assert error < 1e-4  # of activations, since the weights are Q8_0
        assert 2 * error < total_error(plain.logits(ids), exact)
        assert (wide.logits(ids, chunk=3) == logits).all()


@pytest.mark.parametrize("kv_type", ["q4_0", "", 8, b"f16"])
def test_session_refuses_another_kv_type(kv_type: object, tiny_path: Path) -> None:
    with pytest.raises(RequestError, match=r"kv_type is .*: it must be 'f16', 'f32' or 'q8_0'"):
        emel.load(tiny_path, kv_type=kv_type)  # type: ignore[arg-type]
