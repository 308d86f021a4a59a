"""A finished file takes the place of an old one in one step, or nothing changes."""

from __future__ import annotations

import fcntl
from typing import TYPE_CHECKING

import pytest

from emel.io.publishing import PartialFile, publish

if TYPE_CHECKING:
    from pathlib import Path


def test_publish_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished, target = tmp_path / "finished", tmp_path / "target"
    finished.write_bytes(b"new")
    target.write_bytes(b"old")
    seen: list[bytes] = []
    monkeypatch.setattr("os.fsync", lambda _: seen.append(target.read_bytes()))
    publish(finished, target)
    assert seen == [b"old"]
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("target", b"new")]


def test_publish_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    finished, target = tmp_path / "finished", tmp_path / "target"
    finished.write_bytes(b"new")
    target.write_bytes(b"old")
    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        publish(finished, target)
    assert (finished.read_bytes(), target.read_bytes()) == (b"new", b"old")


def test_partial_file_has_one_writer(tmp_path: Path) -> None:
    target = tmp_path / "model.gguf"
    first = PartialFile(target)
    first.path.write_bytes(b"first")
    with pytest.raises(OSError, match="another run is writing it"):
        PartialFile(target)
    assert first.path.read_bytes() == b"first"
    first.publish()
    second = PartialFile(target)  # the first is not closed yet
    first.close()
    first.close()
    assert second.path.exists()
    second.close()
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("model.gguf", b"first")]


def test_partial_file_that_is_not_published_is_gone(tmp_path: Path) -> None:
    left = tmp_path / "a.partial"  # by a run that was killed
    left.write_bytes(b"half")
    partial = PartialFile(tmp_path / "a")
    assert partial.path == left
    partial.close()
    assert list(tmp_path.iterdir()) == []


def test_partial_file_of_a_writer_that_ends_meanwhile_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, lock = tmp_path / "a", fcntl.flock
    turns: list[int] = []

    def late(file: object, operation: int) -> None:
        if not turns:
            turns.append(1)
            (tmp_path / "a.partial").unlink()  # between opening and locking
        lock(file, operation)  # type: ignore[arg-type]

    monkeypatch.setattr("fcntl.flock", late)
    partial = PartialFile(target)
    assert partial.path.exists()
    partial.close()
