from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emel.engine.sequence import OpenSequence
from emel.errors import RequestError
from emel.graph.batch import Outputs
from unit.engine.interrupts import interrupted_runs

if TYPE_CHECKING:
    import emel


def test_sequence_is_open_while_its_block_lasts(model: emel.Model) -> None:
    session = model.session
    with OpenSequence(session) as sequence:
        session.turns.run(lambda: sequence.compute([1, 2, 3], Outputs.NONE))
        assert session.cache.n_tokens(sequence.sequence) == 3
        session.turns.run(lambda: sequence.compute([4], Outputs.LAST))
        assert session.batch.n_outputs == 1
    assert session.seats == []


def test_sequence_left_to_be_collected_is_closed(model: emel.Model) -> None:
    """As one is whose `with` an interrupt kept from closing it."""
    sequence = OpenSequence(model.session)
    sequence.__enter__()
    assert len(model.session.seats) == 1
    del sequence
    assert model.session.seats == []


def test_sequence_that_outgrows_the_context_is_a_request_error(model: emel.Model) -> None:
    session = model.session
    with OpenSequence(session) as sequence:
        session.turns.run(lambda: sequence.compute([1] * model.n_ctx, Outputs.NONE))
        with pytest.raises(RequestError, match="1 more tokens after 96 exceed the context of 96"):
            session.turns.run(lambda: sequence.compute([1], Outputs.NONE))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # an interrupt in __del__ goes nowhere
def test_interrupt_anywhere_closes_the_sequence(model: emel.Model) -> None:
    session = model.session

    def action() -> None:
        with OpenSequence(session) as sequence:
            session.turns.run(lambda: sequence.compute([1, 2, 3], Outputs.LAST))

    n_runs = 0
    for _ in interrupted_runs(action, "engine/sequence.py", "engine/session.py", "engine/turns.py", "emel/memory"):
        n_runs += 1
        assert session.turns.run(lambda: list(session.seats)) == []
    assert n_runs > 30
