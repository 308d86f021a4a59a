"""Models in several files: found, checked, joined, or refused with the part named."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

import pytest

from emel.gguf import GgufError, open_gguf
from emel.gguf.split import MAX_PARTS, part_name
from emel.io.errors import SourceError
from unit.gguf.builder import F32, I32, STRING, U16, U32, Build, entry, tensor
from unit.io.fakes import FaultyPlatform

if TYPE_CHECKING:
    from pathlib import Path


def part(index: int, n_parts: int, names: list[str], *, n_tensors: int | None = None) -> Build:
    """A part whose tensors are four floats each, all of them the sum of the tensor's letters."""
    entries = [entry("split.no", U16, index), entry("split.count", U16, n_parts)]
    if n_tensors is not None:
        entries.append(entry("split.tensors.count", I32, n_tensors))
    if index == 0:
        entries.append(entry("general.architecture", STRING, "llama"))
    tensors = [tensor(name, (4,), 0, 32 * at) for at, name in enumerate(names)]
    data = b"".join(struct.pack("<4f", *[sum(name.encode())] * 4) + bytes(16) for name in names)
    return Build(entries, tensors, data)


PARTS = (["a", "b"], ["c"], ["d", "e"])


def write_parts(folder: Path, *, stem: str = "model", n_tensors: int | None = 5) -> list[Path]:
    paths = [folder / part_name(stem, index, len(PARTS)) for index in range(len(PARTS))]
    for index, path in enumerate(paths):
        path.write_bytes(part(index, len(PARTS), PARTS[index], n_tensors=n_tensors).bytes())
    return paths


def test_split_models_are_opened_by_their_first_part(tmp_path: Path) -> None:
    paths = write_parts(tmp_path, stem="a model-00001-of-00009")
    platform = FaultyPlatform()
    with open_gguf(paths[0], platform=platform) as file:
        assert file.metadata.get_str("general.architecture") == "llama"
        assert {name: info.part for name, info in file.tensors.items()} == {"a": 0, "b": 0, "c": 1, "d": 2, "e": 2}
        assert [(each.path, each.n_bytes) for each in file.parts] == [(str(p), p.stat().st_size) for p in paths]
        assert file.n_bytes == sum(path.stat().st_size for path in paths)
        file.prefetch()
        with file.open_reader() as reader:
            for name in "abcde":
                assert memoryview(reader.read(name)).cast("f").tolist() == [float(ord(name))] * 4
                assert file.tensor_data(name) == reader.read(name)
    with pytest.raises(SourceError, match="closed"):
        file.tensor_data("e")
    platform.assert_nothing_left()


def test_split_of_one_part_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "any name"
    path.write_bytes(part(0, 1, ["a"]).bytes())
    with open_gguf(path) as file:
        assert list(file.tensors) == ["a"]


def refusal(path: Path) -> str:
    platform = FaultyPlatform()
    with pytest.raises(GgufError) as caught:
        open_gguf(path, platform=platform)
    platform.assert_nothing_left()
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_split_names_each_missing_part(tmp_path: Path) -> None:
    paths = write_parts(tmp_path)
    paths[1].unlink()
    assert "1 of the model's 3 parts are missing" in refusal(paths[0])
    assert refusal(paths[0]).endswith("fetch 'model-00002-of-00003.gguf'")
    paths[2].unlink()
    assert refusal(paths[0]).endswith("fetch 'model-00002-of-00003.gguf', 'model-00003-of-00003.gguf'")


def test_split_names_the_first_part_for_another(tmp_path: Path) -> None:
    paths = write_parts(tmp_path)
    assert refusal(paths[2]).endswith(f"part 3 of 3 of a split model: open the first, {str(paths[0])!r}")


def test_split_needs_the_names_of_parts(tmp_path: Path) -> None:
    paths = write_parts(tmp_path)
    for name in ("model.gguf", "model-00001-of-00004.gguf", "model-00002-of-00003.gguf", "model-1-of-3.gguf"):
        renamed = paths[0].rename(tmp_path / name)
        assert "its name does not end in '-00001-of-00003.gguf', by which the others would be found" in refusal(renamed)
        paths[0] = renamed


def test_split_parts_must_say_what_their_names_say(tmp_path: Path) -> None:
    paths = write_parts(tmp_path)
    paths[1].write_bytes(part(2, 3, ["c"]).bytes())
    assert f"{str(paths[1])!r} says it is part 3 of 3, its name says part 2 of 3" in refusal(paths[0])
    paths[1].write_bytes(part(0, 1, ["c"]).bytes())
    assert "says it is part 1 of 1, its name says part 2 of 3" in refusal(paths[0])


def test_split_counts_the_tensors(tmp_path: Path) -> None:
    paths = write_parts(tmp_path, n_tensors=6)
    assert "have 5 tensors, 'split.tensors.count' says 6: fetch them again" in refusal(paths[0])
    with open_gguf(write_parts(tmp_path, n_tensors=None)[0]) as file:
        assert len(file.tensors) == 5


def test_split_refuses_a_tensor_in_two_parts(tmp_path: Path) -> None:
    paths = write_parts(tmp_path)
    paths[2].write_bytes(part(2, 3, ["d", "a"]).bytes())
    assert refusal(paths[0]) == f"tensor 'a' is in {str(paths[0])!r} and in {str(paths[2])!r}"


def test_split_says_which_part_is_damaged(tmp_path: Path) -> None:
    paths = write_parts(tmp_path)
    os.truncate(paths[1], paths[1].stat().st_size - 20)
    line = refusal(paths[0])
    assert line.startswith(f"{str(paths[1])!r}: tensor 'c' ends at byte")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (entry("split.count", U32, MAX_PARTS + 1), f"one of {MAX_PARTS + 1} parts ('split.count'): "),
        (entry("split.count", I32, -3), r"metadata 'split.count' is -3 (INT32): a count is wanted"),
        (entry("split.count", F32, 2.0), r"metadata 'split.count' is 2.0 (FLOAT32): a count is wanted"),
    ],
)
def test_split_refuses_counts_that_are_none(tmp_path: Path, value: bytes, message: str) -> None:
    path = tmp_path / "model-00001-of-00003.gguf"
    path.write_bytes(Build([value]).bytes())
    assert message in refusal(path)


def test_split_reader_reports_the_part_that_shrank(tmp_path: Path) -> None:
    paths = write_parts(tmp_path)
    with open_gguf(paths[0]) as file:
        os.truncate(paths[2], 40)
        with pytest.raises(SourceError, match=r"model-00003-of-00003\.gguf' shrank"):
            file.open_reader()
