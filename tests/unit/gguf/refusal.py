"""What the malformed files of the tests share."""

from __future__ import annotations

import time
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from emel.gguf import GgufError
from emel.gguf.parser import parse
from unit.gguf.builder import (
    Build,
)

if TYPE_CHECKING:
    from collections.abc import Callable


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


def cost_of(work: Callable[[], object]) -> tuple[float, int]:
    """(seconds, peak bytes) of the best of five runs: others use this machine too."""
    costs = []
    for _ in range(5):
        tracemalloc.start()
        try:
            start = time.perf_counter()
            work()
            costs.append((time.perf_counter() - start, tracemalloc.get_traced_memory()[1]))
        finally:
            tracemalloc.stop()
    return min(costs)
