"""Files that cannot be opened: one clear line each."""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING

import pytest

from emel.io.source import Strategy
from unit.io.fakes import FaultyPlatform
from unit.io.sources import STRATEGIES, error_of, opened

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_descriptor_names_what_cannot_be_opened(tmp_path: Path, strategy: Strategy) -> None:
    missing = tmp_path / "none.gguf"
    assert error_of(opened(missing, strategy)) == f"cannot open {str(missing)!r}: no such file: check the path"
    assert "it is a folder: name the .gguf file in it" in error_of(opened(tmp_path, strategy))
    empty = tmp_path / "empty.gguf"
    empty.touch()
    assert "the file is empty (0 bytes): fetch it again" in error_of(opened(empty, strategy))
    assert "not a folder" in error_of(opened(empty / "x", strategy))
    assert "null" in error_of(opened("a\0b", strategy))
    assert "path is too long" in error_of(opened("x" * 5000, strategy))
    assert "it is a device: a model is read from a regular file" in error_of(opened("/dev/null", strategy))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_descriptor_does_not_wait_for_a_pipe(tmp_path: Path, strategy: Strategy) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "it is a pipe" in error_of(opened(tmp_path / "pipe", strategy))


def test_descriptor_names_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        assert error_of(opened("s", Strategy.AUTO)).startswith("cannot open 's': ")


def test_descriptor_names_missing_permission(model: Path) -> None:
    machine = opened(model, Strategy.AUTO, FaultyPlatform(fail_at=1, code=errno.EACCES))
    assert "permission denied: make the file readable for this user" in error_of(machine)
