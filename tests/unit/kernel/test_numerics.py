from __future__ import annotations

import re
from typing import Any

import pytest

from emel._native import LIBRARY
from emel.kernel.numerics import ACTIVATIONS, Activations, choose_activations, numerics_version


def test_activations_are_int16_unless_asked_for() -> None:
    assert choose_activations() is choose_activations(None) is Activations.INT16
    assert [choose_activations(name) for name in ACTIVATIONS] == list(Activations)
    assert choose_activations("int8") is Activations.INT8


@pytest.mark.parametrize("name", ["", "INT8", "int4", "8", [], 5, ["int8"]])
def test_unknown_activations_are_refused_by_name(name: Any) -> None:
    with pytest.raises(
        ValueError, match=f"^there are no activations {re.escape(repr(name))}: allowed are int16, int8$"
    ):
        choose_activations(name)


def test_numerics_version_tells_the_kinds_apart() -> None:
    version = LIBRARY.emel_numerics_version()
    assert numerics_version() == numerics_version(Activations.INT16) == str(version)
    assert numerics_version(Activations.INT8) == f"{version}-int8"
