"""What the malformed files of the tests share."""

from __future__ import annotations

import pytest

from emel.gguf import GgufError
from emel.gguf.parser import parse
from unit.gguf.builder import (
    Build,
)


def refusal(data: bytes) -> str:
    """The one line parse refuses data with."""
    with pytest.raises(GgufError) as caught:
        parse(data)
    line = str(caught.value)
    assert "\n" not in line
    return line


def one(*entries: bytes) -> bytes:
    return Build(list(entries)).head()


def with_tensors(*tensors: bytes, data: int = 4096) -> bytes:
    return Build([], list(tensors), bytes(data)).bytes()
