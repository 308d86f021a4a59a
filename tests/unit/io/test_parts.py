"""The files of a model: opened together, as they were, or one error and nothing left open."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from emel.io.errors import SourceError
from emel.io.parts import FilePart, close_parts, open_parts
from unit.io.fakes import FaultyPlatform

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def parts(tmp_path: Path) -> list[FilePart]:
    for at in range(3):
        (tmp_path / str(at)).write_bytes(bytes([at]) * (at + 10))
    return [FilePart(str(tmp_path / str(at)), at + 10) for at in range(3)]


@pytest.mark.parametrize("is_direct", [False, True])
def test_open_parts_opens_every_file(parts: list[FilePart], is_direct: bool) -> None:
    platform = FaultyPlatform()
    opened = open_parts(platform, parts, is_direct=is_direct)
    assert [(each.path, each.file.n_bytes) for each in opened] == [tuple(part) for part in parts]
    assert len({each.file.descriptor for each in opened}) == 3
    close_parts(platform, opened)
    platform.assert_nothing_left()


@pytest.mark.parametrize("at", [0, 2])
@pytest.mark.parametrize(("change", "word"), [(-1, "shrank"), (1, "grew")])
def test_open_parts_refuses_a_file_of_another_size(parts: list[FilePart], at: int, change: int, word: str) -> None:
    platform = FaultyPlatform()
    os.truncate(parts[at].path, at + 10 + change)
    with pytest.raises(SourceError, match=f"{word} from {at + 10} to {at + 10 + change} bytes"):
        open_parts(platform, parts)
    platform.assert_nothing_left()


@pytest.mark.parametrize("is_direct", [False, True])
def test_open_parts_leaves_nothing_open_whichever_call_fails(parts: list[FilePart], is_direct: bool) -> None:
    n_failed = 0
    for fail_at in range(1, 100):
        platform = FaultyPlatform(fail_at)
        try:
            close_parts(platform, open_parts(platform, parts, is_direct=is_direct))
        except SourceError:
            n_failed += 1
        platform.assert_nothing_left()
        if not platform.has_failed:
            break
    assert n_failed == 6  # opening and measuring; direct reads and closing may fail
