from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from gguf import GGUFWriter

from emel.bench import decode_roof
from emel.bench.decode_roof import DecodeRoof, decode_roof_of
from model.gguf_writing import finish

if TYPE_CHECKING:
    from pathlib import Path


def write_model(path: Path, tensors: dict[str, int]) -> Path:
    """A file with vectors of that many float32 values."""
    writer = GGUFWriter(path, "llama")
    for name, n in tensors.items():
        writer.add_tensor(name, np.zeros(n, np.float32))
    finish(writer)
    return path


@pytest.mark.parametrize(
    ("tensors", "n_bytes"),
    [
        ({"token_embd.weight": 100, "blk.0.attn_q.weight": 20}, 480),  # tied: the embeddings give the logits
        ({"token_embd.weight": 100, "blk.0.attn_q.weight": 20, "output.weight": 50}, 280),
    ],
)
def test_decode_roof_counts_what_one_token_reads(tmp_path: Path, tensors: dict[str, int], n_bytes: int) -> None:
    assert decode_roof_of(write_model(tmp_path / "a.gguf", tensors)) == DecodeRoof(n_bytes)


def test_decode_roof_of_experts_and_of_no_model_is_unknown(tmp_path: Path) -> None:
    assert decode_roof_of(write_model(tmp_path / "a.gguf", {"blk.0.ffn_up_exps.weight": 8})) is None
    (tmp_path / "b.gguf").write_bytes(b"GGUF")
    assert decode_roof_of(tmp_path / "b.gguf") is None
    assert decode_roof_of(tmp_path / "missing.gguf") is None


def test_decode_roof_share_is_of_the_bytes_read() -> None:
    assert DecodeRoof(200_000_000).share(tokens_per_second=100, roof=40.0) == 0.5


def test_decode_roof_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_roof, "MEGABYTES", 1)
    monkeypatch.setattr(decode_roof, "SECONDS", 1e-3)
    assert 0.01 < DecodeRoof(1).measure(2) < 1e4
