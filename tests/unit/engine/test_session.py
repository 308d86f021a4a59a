from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emel.engine.session import DEFAULT_CONTEXT, MAX_SEQUENCES, Seat, Session, context_size
from emel.errors import RequestError

if TYPE_CHECKING:
    from pathlib import Path

    import emel


class Holder:
    sequence: int | None = None


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
    import emel.engine.session as module

    names = ("load_model", "KvCache", "Batch", "ReservedGraph", "load_tokenizer")
    for name in names:
        closed: list[object] = []
        with monkeypatch.context() as patch:
            patch.setattr(module.LanePool, "close", lambda self, closed=closed: closed.append(self))

            def fail(*_: object, **__: object) -> None:
                raise MemoryError("no more")

            patch.setattr(module, name, fail)
            with pytest.raises(MemoryError, match="no more"):
                Session(tiny_path, n_threads=1)
        assert len(closed) == 1, name


def test_admission_that_fails_leaves_a_seat_that_can_be_left(model: emel.Model) -> None:
    session, seat = model.session, Seat(Holder())

    def begin() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session.admit(seat, begin)
    session.turns.soon(lambda: session.leave(seat))
    assert session.seats == []


def test_admission_is_taken_once(model: emel.Model) -> None:
    session, seat, begun = model.session, Seat(Holder()), list[int]()
    for _ in range(2):
        session.admit(seat, lambda: begun.append(1))
    assert session.seats == [seat]
    assert begun == [1]
    session.turns.soon(lambda: session.leave(seat))
    seat.is_wanted = False
    session.admit(seat, lambda: begun.append(1))
    assert session.seats == []
    assert begun == [1]


def test_interrupted_wait_is_forgotten(model: emel.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    session = model.session
    seats = [Seat(Holder()) for _ in range(MAX_SEQUENCES)]
    for seat in seats:
        session.admit(seat, lambda: None)
        seat.thread = -1  # another thread's

    class Gate:
        n_acquired = 0

        def acquire(self) -> None:
            self.n_acquired += 1
            if self.n_acquired == 2:
                raise KeyboardInterrupt

    monkeypatch.setattr("emel.engine.session.new_gate", Gate)
    with pytest.raises(KeyboardInterrupt):
        session.admit(Seat(Holder()), lambda: None)
    assert session._waiting == {}
    for seat in seats:
        session.turns.soon(lambda seat=seat: session.leave(seat))


def test_close_is_harmless_when_repeated(tiny_path: Path) -> None:
    session = Session(tiny_path, n_threads=1)
    session.close()
    session.close()
    with pytest.raises(RequestError, match="this model is closed") as caught:
        session.check_open()
    assert caught.value.hint == "load it again with emel.load; close it after its requests"
