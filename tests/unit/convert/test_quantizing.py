"""Quantised copies of tiny models: what is in them, that they run, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize, quantize

import emel
from emel.convert import quantizing
from emel.convert.errors import ConvertError
from emel.convert.mixes import MIXES
from emel.convert.quantizing import Progress, checked_mix, quantize_file
from emel.convert.values import encode
from emel.gguf import open_gguf
from emel.tensor.types import TensorType
from model.tiny_llama import Geometry, write_tiny_llama
from reference.error import relative_rms_error
from unit.gguf.test_split import write_parts

if TYPE_CHECKING:
    from pathlib import Path

GEOMETRY = Geometry(n_layers=2, d_model=256, d_ff=256, tied=False)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("quantize") / "f32.gguf"
    write_tiny_llama(path, GEOMETRY, "F32")
    return path


def test_metadata_stay_but_for_what_tells_the_kind(source: Path, tmp_path: Path) -> None:
    quantize_file(source, tmp_path / "q.gguf", MIXES["Q4_K_M"])
    before, after = gguf.GGUFReader(source).fields, gguf.GGUFReader(tmp_path / "q.gguf").fields
    assert after["general.file_type"].contents() == 15
    assert after["general.quantization_version"].contents() == 2
    for key, entry in before.items():
        if not key.startswith("GGUF.") and key not in ("general.file_type", "general.quantization_version"):
            assert after[key].contents() == entry.contents(), key
            assert after[key].types == entry.types, key


@pytest.mark.parametrize("mix", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_simple_types_are_those_of_the_gguf_package(
    source: Path, tmp_path: Path, mix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantizing, "_PIECE_VALUES", 1000)  # several pieces a tensor, the last one smaller
    quantize_file(source, tmp_path / "q.gguf", MIXES[mix], n_threads=2)
    before = {tensor.name: tensor for tensor in gguf.GGUFReader(source).tensors}
    after = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "q.gguf").tensors}
    assert list(after) == list(before)
    found = after["blk.1.ffn_up.weight"]
    kind = gguf.GGMLQuantizationType[mix]
    assert found.tensor_type == kind
    expected = quantize(before["blk.1.ffn_up.weight"].data, kind)
    assert np.array_equal(np.asarray(found.data).view(np.uint8), expected.view(np.uint8))
    norm = "blk.1.ffn_norm.weight"
    assert np.array_equal(after[norm].data, before[norm].data)


@pytest.mark.parametrize("mix", ["Q8_0", "Q4_K_M", "Q5_K_S", "Q6_K"])
def test_quantised_copies_run_and_err_as_their_bits_allow(source: Path, tmp_path: Path, mix: str) -> None:
    quantize_file(source, tmp_path / "q.gguf", MIXES[mix])
    ids = list(range(40, 60))
    with emel.load(source, n_threads=1, n_lanes=1) as exact, emel.load(tmp_path / "q.gguf", n_threads=1) as rough:
        error = relative_rms_error(rough.logits(ids), exact.logits(ids).astype(np.float64)).mean()
    assert 0.001 < error < {"Q8_0": 0.04, "Q6_K": 0.1, "Q5_K_S": 0.2, "Q4_K_M": 0.35}[mix]


def test_a_tensor_of_the_wanted_type_is_copied_bit_by_bit(source: Path, tmp_path: Path) -> None:
    once, twice = tmp_path / "once.gguf", tmp_path / "twice.gguf"
    quantize_file(source, once, MIXES["Q8_0"])
    quantize_file(once, twice, MIXES["Q8_0"])
    assert twice.read_bytes() == once.read_bytes()


def test_quantised_tensors_are_refused_unless_allowed(source: Path, tmp_path: Path) -> None:
    once, twice = tmp_path / "once.gguf", tmp_path / "twice.gguf"
    quantize_file(source, once, MIXES["Q8_0"])
    with pytest.raises(ConvertError, match=r"^tensor 'token_embd.weight' is Q8_0 already: making Q4_0 of it would"):
        quantize_file(once, twice, MIXES["Q4_0"])
    assert sorted(each.name for each in tmp_path.iterdir()) == ["once.gguf"]
    quantize_file(once, twice, MIXES["Q4_0"], allow_requantize=True)
    with open_gguf(twice) as file:
        assert file.tensors["token_embd.weight"].type is TensorType.Q4_0


def test_progress_tells_every_tensor_and_the_summary_their_bytes(source: Path, tmp_path: Path) -> None:
    seen: list[Progress] = []
    summary = quantize_file(source, tmp_path / "q.gguf", MIXES["Q8_0"], report=seen.append)
    with open_gguf(source) as before, open_gguf(tmp_path / "q.gguf") as after:
        assert [each.name for each in seen] == list(before.tensors)
        assert summary.n_bytes_before == sum(each.n_bytes for each in before.tensors.values())
        assert summary.n_bytes_after == sum(each.n_bytes for each in after.tensors.values())
    assert [each.n_done for each in seen] == list(range(1, len(seen) + 1))


def test_nothing_is_left_of_a_copy_that_failed(source: Path, tmp_path: Path) -> None:
    def fail(progress: Progress) -> None:
        if progress.n_done == 3:
            raise KeyError("the disk is full")

    with pytest.raises(KeyError, match="the disk is full"):
        quantize_file(source, tmp_path / "q.gguf", MIXES["Q8_0"], report=fail)
    assert list(tmp_path.iterdir()) == []


def test_a_copy_that_cannot_be_written_to_the_disk_leaves_the_old_file(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "q.gguf").write_bytes(b"old")
    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        quantize_file(source, tmp_path / "q.gguf", MIXES["Q8_0"])
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("q.gguf", b"old")]


def test_a_file_is_not_written_over_itself(source: Path) -> None:
    with pytest.raises(ConvertError, match=r"is the file that is read: give another name for the new one$"):
        quantize_file(source, source, MIXES["Q8_0"])


def test_no_part_of_a_split_model_is_written_over(tmp_path: Path) -> None:
    paths = write_parts(tmp_path)
    before = [path.read_bytes() for path in paths]
    for path in paths:
        with pytest.raises(ConvertError, match=r"is the file that is read: give another name for the new one$"):
            quantize_file(paths[0], path, MIXES["Q8_0"])
    assert [path.read_bytes() for path in paths] == before


def test_unknown_types_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ConvertError, match=r"^type 'q9' is unknown: allowed are F32, F16, BF16, Q8_0, .* Q4_K, Q5_K$"):
        checked_mix("q9")


@pytest.mark.parametrize("type_", [TensorType.Q8_0, TensorType.Q4_K, TensorType.F32])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(type_: TensorType, value: float) -> None:
    values = np.zeros((1, 256), dtype=np.float32)
    values[0, 7] = value
    with pytest.raises(ConvertError, match=r"^tensor 'x' has values that are not finite: the file is damaged$"):
        encode(values, type_, "x")


def test_values_beyond_float16_are_refused_where_they_do_not_fit() -> None:
    values = np.full((1, 256), 1e6, dtype=np.float32)
    with pytest.raises(
        ConvertError, match=r"^tensor 'x' has a value of 1e\+06: F16 holds up to 65504\nhint: F32 and BF16 hold it$"
    ):
        encode(values, TensorType.F16, "x")
    stored = encode(values, TensorType.BF16, "x").reshape(1, -1)
    assert dequantize(stored, gguf.GGMLQuantizationType.BF16)[0, 0] == pytest.approx(1e6, rel=0.004)
