"""Metadata overrides on their way from emel.load to the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import emel
from emel.errors import ModelLoadError, RequestError

if TYPE_CHECKING:
    from pathlib import Path


def test_load_takes_metadata_in_place_of_the_files(tiny_path: Path) -> None:
    ids = [3, 14, 15, 92, 65]
    with emel.load(tiny_path) as model:
        plain = model.logits(ids)
    with emel.load(tiny_path, overrides={"llama.rope.freq_base": 500.0, "general.name": "mine"}) as model:
        assert model.metadata["general.name"] == "mine"
        assert not (model.logits(ids) == plain).all()


@pytest.mark.parametrize("overrides", ["llama.block_count", 7, [("a", 1)], {7: "a"}, {b"a": 1}])
def test_overrides_that_are_no_keys_with_values_are_refused(tiny_path: Path, overrides: Any) -> None:
    with pytest.raises(RequestError, match=r"^overrides (is|has the key) "):
        emel.load(tiny_path, overrides=overrides)


def test_load_names_a_bad_override(tiny_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"override of 'llama\.block_count' is STRING, the file has UINT32"):
        emel.load(tiny_path, overrides={"llama.block_count": "1"})
    with pytest.raises(ModelLoadError, match=r"metadata 'llama\.block_count' is 0: 1 to 4096 are allowed"):
        emel.load(tiny_path, overrides={"llama.block_count": 0})
