"""Tensors by reads: a file that changes is an error at every moment."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from emel.gguf import open_gguf
from emel.io.errors import SourceError
from unit.io.fakes import FaultyPlatform

if TYPE_CHECKING:
    from pathlib import Path


def test_tensor_reader_reads_what_the_file_has(model: Path) -> None:
    platform = FaultyPlatform()
    with open_gguf(model, platform=platform) as file, file.open_reader() as reader:
        assert reader.read("w") == bytes(range(36))
        target = bytearray(40)
        with memoryview(target) as view:
            reader.read_into("w", view[2:38])
            with pytest.raises(ValueError, match="tensor 'w' has 36 bytes, the target 40"):
                reader.read_into("w", view)
        assert target == bytes(2) + bytes(range(36)) + bytes(2)
        with pytest.raises(KeyError):
            reader.read("no such tensor")
    platform.assert_nothing_left()


def test_tensor_reader_needs_the_size_that_was_parsed(model: Path) -> None:
    size = model.stat().st_size
    platform = FaultyPlatform()
    with open_gguf(model, platform=platform) as file:
        for change, n_bytes in (("grew", size + 1), ("shrank", size - 1), ("shrank", 1)):
            os.truncate(model, n_bytes)
            with pytest.raises(SourceError, match=f"{change} from {size} to {n_bytes} bytes while it was in use"):
                file.open_reader()
        os.truncate(model, 0)
        with pytest.raises(SourceError, match="the file is empty"):
            file.open_reader()
        model.unlink()
        with pytest.raises(SourceError, match="no such file"):
            file.open_reader()
    with pytest.raises(SourceError, match="closed"):
        file.open_reader()
    platform.assert_nothing_left()


def test_tensor_reader_reports_a_file_that_shrinks_before_a_read(model: Path) -> None:
    size = model.stat().st_size
    with open_gguf(model) as file, file.open_reader() as reader:
        info = file.tensors["w"]
        os.truncate(model, info.offset + 10)
        with pytest.raises(SourceError, match=f"shrank from {size} to {info.offset + 10} bytes while it was read"):
            reader.read("w")
        os.truncate(model, 0)
        with pytest.raises(SourceError, match="while it was read: fetch it again"):
            reader.read("w")


def test_tensor_reader_fails_cleanly_at_every_platform_call(model: Path) -> None:
    errors: list[str] = []
    while True:
        platform = FaultyPlatform()
        with open_gguf(model, platform=platform) as file:
            platform.fail_at, platform.code = platform.n_calls + len(errors) + 1, errno.EIO
            try:
                with file.open_reader() as reader:
                    assert reader.read("w") == bytes(range(36))
            except SourceError as error:
                errors.append(str(error))
            else:
                break
        platform.assert_nothing_left()
    assert [each.split(" ")[1] for each in errors] == ["open", "open", "read"]
    assert all("Input/output error" in each for each in errors)
