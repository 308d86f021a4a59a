"""Matrices that the read lanes pack to stay: the bytes that packing gives, or one error and nothing left."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pytest

from emel._native import NativeError
from emel.io.errors import SourceError
from emel.io.parts import FilePart
from emel.kernel.loading import load_packed
from emel.kernel.packing import Vector
from emel.tensor.types import TensorType
from unit.io.fakes import FaultyPlatform
from unit.tensor.layered_file import LayeredFile

if TYPE_CHECKING:
    from pathlib import Path

    from emel.tensor.window_layout import Extent

CHUNK = 1 << 16


@pytest.fixture
def file(tmp_path: Path) -> LayeredFile:
    return LayeredFile(tmp_path / "layers")


def extents_of(file: LayeredFile) -> list[Extent]:
    return [extent for unit in file.units for extent in unit]


def test_matrices_and_vectors_lie_where_they_are_located(file: LayeredFile) -> None:
    norm = Vector("norm", TensorType.F32, 4, bytes(range(16)))
    platform = FaultyPlatform()
    shuffled = sorted(extents_of(file), key=lambda extent: extent.name[::-1])
    weights = load_packed(file.parts, shuffled, [norm], chunk_bytes=CHUNK, platform=platform)
    for extent in shuffled:
        location = weights.locate(extent.name)
        assert ctypes.string_at(location.address, location.n_bytes) == file.packed[extent.name]
    location = weights.locate("norm")
    assert ctypes.string_at(location.address, location.n_bytes) == norm.data
    weights.close()
    platform.assert_nothing_left()


def test_more_matrices_than_a_request_has_parts_are_loaded(file: LayeredFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emel.io.staged.MOST_PARTS", 2)
    extents = extents_of(file)
    assert len(extents) == 12
    weights = load_packed(file.parts, extents, [], chunk_bytes=CHUNK)
    for extent in extents:
        location = weights.locate(extent.name)
        assert ctypes.string_at(location.address, location.n_bytes) == file.packed[extent.name]
    weights.close()


def test_without_matrices_the_file_is_not_opened(tmp_path: Path) -> None:
    weights = load_packed(
        [FilePart(str(tmp_path / "missing"), 1)], [], [Vector("norm", TensorType.F32, 4, bytes(16))], chunk_bytes=CHUNK
    )
    assert weights.locate("norm").n_bytes == 16
    weights.close()


@pytest.mark.parametrize("fail_at", [1, 2])
def test_a_file_that_cannot_be_opened_is_one_error(file: LayeredFile, fail_at: int) -> None:
    platform = FaultyPlatform(fail_at)
    with pytest.raises(SourceError, match=r"^cannot open"):
        load_packed(file.parts, extents_of(file), [], chunk_bytes=CHUNK, platform=platform)
    platform.assert_nothing_left()


def test_a_matrix_beyond_the_end_of_its_file_is_one_error(file: LayeredFile) -> None:
    extents, parts = extents_of(file), file.parts
    file.path.write_bytes(file.path.read_bytes()[: extents[3].end - 1])
    for known, error in ((parts, SourceError), (file.parts, NativeError)):
        platform = FaultyPlatform()
        with pytest.raises(error, match=r"shrank from|ends beyond the file's"):
            load_packed(known, extents, [], chunk_bytes=CHUNK, platform=platform)
        platform.assert_nothing_left()
