"""What the engine is to call: refused where it is handed over, so that the wave never meets one it cannot call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from emel.errors import RequestError

if TYPE_CHECKING:
    import emel


class Deaf:
    """Hears chunks and no end."""

    def on_chunk(self, chunk: Any) -> None:
        pass


@pytest.mark.parametrize("listener", [None, 5, "on_end", object(), {"on_end": print}])
def test_listener_without_its_methods_is_refused_and_the_wave_goes_on(model: emel.Model, listener: Any) -> None:
    with pytest.raises(RequestError, match="which has no method on_chunk and no on_end and no on_failure") as caught:
        model.submit([1], listener, max_tokens=2)
    assert "on_chunk, on_end, on_failure" in str(caught.value.hint)
    assert len(model.generate_ids([1], max_tokens=2, temperature=0).token_ids) == 2


def test_every_listener_of_several_is_looked_at(model: emel.Model) -> None:
    with pytest.raises(RequestError, match=r"Deaf object .*, which has no method on_end and no on_failure"):
        model.submit_all([1], [Deaf(), Deaf()], max_tokens=2)  # type: ignore[list-item]
    for listeners in (None, 5, "ab"):
        with pytest.raises(RequestError, match=r"the listeners are .*: they must be a list, one for each answer"):
            model.submit_all([1], listeners, max_tokens=2)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="n is 0"):
        model.submit_all([1], [], max_tokens=2)


@pytest.mark.parametrize("maker", [5, True, "a", np.arange(2), [print]])
def test_new_constraint_must_be_a_function(model: emel.Model, maker: Any) -> None:
    with pytest.raises(RequestError, match=r"new_constraint is .*: it must be a function") as caught:
        model.generate("a", new_constraint=maker, max_tokens=2)
    assert caught.value.hint == "json_schema, grammar, regex, choice say what the answer must obey without one"


def test_new_constraint_must_make_a_constraint(model: emel.Model) -> None:
    with pytest.raises(RequestError, match="new_constraint made 0: it must make None, or an object with is_over, mask"):
        model.generate("a", new_constraint=int, max_tokens=2)
    free = model.generate("a", max_tokens=2, temperature=0)
    assert model.generate("a", new_constraint=lambda: None, max_tokens=2, temperature=0).token_ids == free.token_ids


class Short:
    """A constraint whose mask is shorter than the vocabulary."""

    is_over = False

    def mask(self) -> memoryview:
        return memoryview(b"abcd")

    def accept(self, token: int) -> None:
        pass


def test_mask_that_is_too_short_fails_its_request_alone(model: emel.Model) -> None:
    with pytest.raises(RequestError, match="the constraint's mask has 4 bytes: the vocabulary needs 40"):
        model.generate("a", new_constraint=Short, max_tokens=2)
    assert len(model.generate("a", max_tokens=2, temperature=0).token_ids) == 2
