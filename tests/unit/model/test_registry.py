from __future__ import annotations

import pytest

from emel.model import llama
from emel.model.errors import ModelError
from emel.model.registry import KNOWN, find_architecture


def test_registry_finds_architectures_by_gguf_name() -> None:
    assert find_architecture("llama") is llama


def test_registry_names_the_unknown_and_the_known() -> None:
    with pytest.raises(ModelError, match="architecture 'mamba9' is unknown to EMEL; known are bert, "):
        find_architecture("mamba9")


def test_registry_modules_bear_their_name() -> None:
    for name in KNOWN:
        assert getattr(find_architecture(name), "NAME", None) == name
