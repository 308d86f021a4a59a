"""Files that are written to while a model reads them are noticed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from emel.io.errors import SourceError
from emel.io.parts import FilePart
from emel.io.platform import Platform
from emel.io.unchanged import UnchangedFiles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Looks(Platform):
    """Fails the look number `fail_at`, and counts what stays open."""

    def __init__(self, fail_at: int = 0) -> None:
        self.fail_at, self.n_looks, self.n_open = fail_at, 0, 0

    def open(self, path: str) -> int:
        self.n_open += 1
        return super().open(path)

    def close(self, descriptor: int) -> None:
        self.n_open -= 1
        super().close(descriptor)

    def status(self, descriptor: int) -> os.stat_result:
        self.n_looks += 1
        if self.n_looks == self.fail_at:
            raise OSError(5, "Input/output error")
        return super().status(descriptor)


@pytest.fixture
def parts(tmp_path: Path) -> list[FilePart]:
    paths = [tmp_path / name for name in ("first", "second")]
    for path in paths:
        path.write_bytes(bytes(range(100)))
        os.utime(path, ns=(10**18, 10**18))
    return [FilePart(str(path), 100) for path in paths]


@pytest.fixture
def files(parts: list[FilePart]) -> Iterator[UnchangedFiles]:
    files = UnchangedFiles(parts)
    yield files
    files.close()


def test_unchanged_files_may_be_looked_at_any_number_of_times(files: UnchangedFiles) -> None:
    for _ in range(3):
        files.check()


@pytest.mark.parametrize("n_kept", [0, 40, 99])
def test_a_file_that_was_cut_and_filled_up_is_named(parts: list[FilePart], files: UnchangedFiles, n_kept: int) -> None:
    os.truncate(parts[1].path, n_kept)
    os.truncate(parts[1].path, 100)
    for _ in range(2):
        with pytest.raises(SourceError, match=r"second' was written to while it was in use: load the model again$"):
            files.check()


@pytest.mark.parametrize("change", ["shrank", "grew"])
def test_a_file_of_another_size_is_refused(parts: list[FilePart], change: str) -> None:
    os.truncate(parts[0].path, 99 if change == "shrank" else 101)
    with pytest.raises(SourceError, match=f"first' {change} from 100 to "):
        UnchangedFiles(parts)


def test_every_look_may_fail(parts: list[FilePart]) -> None:
    for fail_at in range(1, 10):
        platform = Looks(fail_at)
        failures = []
        try:
            files = UnchangedFiles(parts, platform=platform)
        except SourceError as error:
            failures.append(str(error))
        else:
            try:
                files.check()
            except SourceError as error:
                failures.append(str(error))
                files.check()
            files.close()
            files.close()
        assert all(each.startswith(("cannot open ", "cannot look at ")) for each in failures)
        assert platform.n_open == 0
        if platform.n_looks < fail_at:
            assert not failures
            return
    pytest.fail("no run passed")
