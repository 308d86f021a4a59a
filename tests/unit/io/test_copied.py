"""Copies: chunks, short reads, files that change."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from emel.io.descriptor import CHUNK_BYTES
from emel.io.source import Strategy, VerifySource
from unit.io.fakes import FaultyPlatform
from unit.io.sources import CONTENT, STRATEGIES, error_of, opened

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("size", [1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES])
def test_copied_copies_whole_chunks_and_remainders(tmp_path: Path, size: int) -> None:
    path = tmp_path / "f"
    data = os.urandom(size)
    path.write_bytes(data)
    platform = FaultyPlatform()
    assert opened(path, Strategy.COPY, platform).context.view == memoryview(data)
    assert platform.calls.count("read_into") == -(-size // CHUNK_BYTES)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_copied_goes_on_after_short_reads(model: Path, strategy: Strategy) -> None:
    class ShortReads(FaultyPlatform):
        def read_into(self, descriptor: int, target: memoryview, offset: int) -> int:
            return super().read_into(descriptor, target[:1000], offset)

    assert opened(model, strategy, ShortReads()).context.view == memoryview(CONTENT)


def test_copied_a_file_that_shrinks_while_it_is_copied_is_an_error(model: Path) -> None:
    class Shrinking(FaultyPlatform):
        def read_into(self, descriptor: int, target: memoryview, offset: int) -> int:
            os.truncate(model, 100)
            return super().read_into(descriptor, target, offset)

    platform = Shrinking()
    assert "shrank from 10240 to 100 bytes while it was read" in error_of(opened(model, Strategy.COPY, platform))
    platform.assert_nothing_left()


def test_copied_a_copy_survives_the_file(model: Path) -> None:
    machine = opened(model, Strategy.COPY)
    os.truncate(model, 1)
    machine.dispatch(VerifySource())
    assert machine.context.view == memoryview(CONTENT)
