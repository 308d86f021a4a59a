"""A finished file takes the place of an old one in one step, or nothing changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emel.io.publishing import publish

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
