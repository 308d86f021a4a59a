"""What commands read whole has an end."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

import pytest

from emel.cli.files import read_file, read_regular_file, text_of_argument
from emel.errors import EmelError

if TYPE_CHECKING:
    from pathlib import Path


def test_read_file_takes_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1234")
    assert read_file(str(path), 4) == b"1234"
    with pytest.raises(EmelError, match="a has more than the 3 bytes that are read of it"):
        read_file(str(path), 3)
    with pytest.raises(EmelError, match="/dev/zero has more than the 10 bytes"):
        read_file("/dev/zero", 10)
    with pytest.raises(FileNotFoundError):
        read_file(str(tmp_path / "b"))


def test_read_regular_file_opens_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    for each in (str(path), str(tmp_path), "/dev/zero", "/dev/null"):
        with pytest.raises(EmelError, match="is no regular file"):
            read_regular_file(each, 10)
    (tmp_path / "a").write_bytes(b"12")
    assert read_regular_file(str(tmp_path / "a"), 2) == b"12"


def test_text_of_argument_says_what_keeps_it_from_being_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes("é".encode())
    assert text_of_argument(str(path), 2) == "é"
    with pytest.raises(argparse.ArgumentTypeError, match="a has more than the 1 bytes"):
        text_of_argument(str(path), 1)
    with pytest.raises(argparse.ArgumentTypeError, match="No such file"):
        text_of_argument(str(tmp_path / "b"), 2)
    path.write_bytes(b"\xff")
    with pytest.raises(argparse.ArgumentTypeError, match="a is not valid UTF-8"):
        text_of_argument(str(path), 2)
