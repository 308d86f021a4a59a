"""Saved logits: written row by row, read back, and refused when they are something else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emel.accuracy.chunks import cut_chunks
from emel.accuracy.logits_file import LogitsWriter, SavedLogits
from emel.errors import RequestError

if TYPE_CHECKING:
    from pathlib import Path

CHUNKS = cut_chunks(range(16), 6)  # 2 chunks, 2 scored rows each
ROWS = np.random.default_rng(0).normal(size=(4, 10))


def write(path: Path, kind: str = "F32") -> Path:
    with LogitsWriter(path, CHUNKS, 10, kind) as writer:
        writer.add(ROWS[:1])
        writer.add(ROWS[1:])
    return path


@pytest.mark.parametrize(("kind", "dtype"), [("F32", np.float32), ("F64", np.float64)])
def test_saved_logits_come_back_chunk_by_chunk(tmp_path: Path, kind: str, dtype: type) -> None:
    saved = SavedLogits(write(tmp_path / "saved", kind))
    assert saved.chunks == CHUNKS
    assert saved.n_vocab == 10
    for chunk in range(2):
        assert np.array_equal(saved.rows(chunk), ROWS[2 * chunk : 2 * chunk + 2].astype(dtype))


def test_saved_logits_are_sound_safetensors(tmp_path: Path) -> None:
    data = write(tmp_path / "saved").read_bytes()
    n_bytes = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + n_bytes])
    assert header["tokens"] == {"dtype": "I32", "shape": [2, 6], "data_offsets": [0, 48]}
    assert header["logits"] == {"dtype": "F32", "shape": [4, 10], "data_offsets": [48, 208]}
    assert len(data) == 8 + n_bytes + 208
    assert n_bytes % 8 == 0


def test_a_failed_writer_leaves_no_file(tmp_path: Path) -> None:
    def fail_midway() -> None:
        with LogitsWriter(tmp_path / "saved", CHUNKS, 10) as writer:
            writer.add(ROWS[:1])
            raise KeyError("broken")

    with pytest.raises(KeyError, match="broken"):
        fail_midway()
    assert list(tmp_path.iterdir()) == []


def test_logits_that_cannot_be_written_to_the_disk_leave_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    def write() -> None:
        with LogitsWriter(tmp_path / "saved", CHUNKS, 10) as writer:
            writer.add(ROWS)

    (tmp_path / "saved").write_bytes(b"old")
    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write()
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("saved", b"old")]


def safetensors(**entries: object) -> bytes:
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


TOKENS = {"dtype": "I32", "shape": [2, 6], "data_offsets": [0, 48]}
LOGITS = {"dtype": "F32", "shape": [4, 10], "data_offsets": [48, 208]}


@pytest.mark.parametrize(
    ("data", "seen"),
    [
        (b"", "no safetensors header"),
        (b"GGUF", "no safetensors header"),
        (b"\xff" * 16, "no safetensors header"),
        ((2).to_bytes(8, "little") + b"[]", "no safetensors header"),
        (safetensors(logits=LOGITS), "no matrix 'tokens'"),
        (safetensors(tokens=TOKENS), "no matrix 'logits'"),
        (safetensors(tokens=TOKENS, logits={**LOGITS, "shape": [40]}), "no matrix 'logits'"),
        (safetensors(tokens=TOKENS, logits={**LOGITS, "shape": [-4, 10]}), "no matrix 'logits'"),
        (
            safetensors(tokens=TOKENS, logits={**LOGITS, "shape": [5, 10]}),
            r"tokens I32 \[2, 6\], logits F32 \[5, 10\]",
        ),
        (
            safetensors(tokens=TOKENS, logits={**LOGITS, "dtype": "F16"}),
            r"tokens I32 \[2, 6\], logits F16 \[4, 10\]",
        ),
        (safetensors(tokens=TOKENS, logits=LOGITS) + bytes(100), r"\d+ bytes, its header promises \d+"),
    ],
)
def test_other_files_are_refused_by_what_is_wrong(tmp_path: Path, data: bytes, seen: str) -> None:
    path = tmp_path / "other"
    path.write_bytes(data)
    with pytest.raises(RequestError, match=f"other' has no saved logits: {seen}\nhint: "):
        SavedLogits(path)
