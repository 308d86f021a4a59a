"""Metadata overrides on their way from emel.load to the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import emel
from emel.errors import ModelLoadError

if TYPE_CHECKING:
    from pathlib import Path


def test_load_takes_metadata_in_place_of_the_files(tiny_path: Path) -> None:
    ids = [3, 14, 15, 92, 65]
    with emel.load(tiny_path) as model:
        plain = model.logits(ids)
    with emel.load(tiny_path, overrides={"llama.rope.freq_base": 500.0, "general.name": "mine"}) as model:
        assert model.metadata["general.name"] == "mine"
        assert not (model.logits(ids) == plain).all()


def test_load_names_a_bad_override(tiny_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"override of 'llama\.block_count' is STRING, the file has UINT32"):
        emel.load(tiny_path, overrides={"llama.block_count": "1"})
    with pytest.raises(ModelLoadError, match=r"metadata 'llama\.block_count' is 0: 1 to 4096 are allowed"):
        emel.load(tiny_path, overrides={"llama.block_count": 0})
