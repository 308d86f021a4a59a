from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import emel
from emel import errors

ERRORS = [each for _, each in inspect.getmembers(errors, inspect.isclass)]
WITH_RESULTS = errors.PromptsFailedError  # its hint is its own


@pytest.mark.parametrize("error", ERRORS)
def test_errors_are_public_and_have_a_hint(error: type[errors.EmelError]) -> None:
    assert getattr(emel, error.__name__) is error
    assert issubclass(error, emel.EmelError)
    if error is WITH_RESULTS:
        return
    plain, hinted = error("it is so"), error("it is so", hint="do this")
    assert (str(plain), plain.hint) == ("it is so", None)
    assert (str(hinted), hinted.hint) == ("it is so", "do this")
    assert hinted.__notes__ == ["hint: do this"]  # what a traceback shows


def test_errors_are_told_in_the_guide_with_what_else_they_are() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "python.md").read_text(encoding="utf-8")
    for error in ERRORS:
        if error is not emel.EmelError:
            builtin = next((f"`{base.__name__}`" for base in error.__bases__ if base is not emel.EmelError), "")
            assert f"| `emel.{error.__name__}` | {builtin}".rstrip() in guide
