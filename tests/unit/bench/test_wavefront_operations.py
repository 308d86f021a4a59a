from __future__ import annotations

import argparse
import itertools
import json
from typing import TYPE_CHECKING

import pytest

from emel.bench.wavefront_command import configure, run
from emel.bench.wavefront_operations import OperationTimes, measure_operations, render_operations
from emel.engine.options import LoadOptions
from emel.engine.session import Session
from model.tiny_llama import Geometry, write_tiny_llama

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LAYER = ["RmsNorm", "attn_q attn_k attn_v", "RopeStore", "Attention", "Quantize", "attn_output", "ffn_gate ffn_up"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("operations") / "tiny.gguf"
    write_tiny_llama(path, Geometry(n_layers=2, d_model=64, n_heads=2, n_kv_heads=1, d_ff=64, n_ctx=96), "Q8_0")
    return path


@pytest.fixture
def session(path: Path) -> Iterator[Session]:
    session = Session(path, LoadOptions(n_ctx=64, n_threads=1, n_lanes=4))
    yield session
    session.close()


def test_measure_operations_has_all_kinds_in_their_order_and_gives_the_memory_back(session: Session) -> None:
    n_free = session.memory.free_blocks()
    ticks = itertools.count()
    times = measure_operations(session, 3, 20, 2, lambda: float(next(ticks)))
    kinds = list(times.seconds)
    assert [kind for kind in kinds if kind in LAYER] == LAYER
    assert kinds[-1] == "Argmax"
    assert times.n_sequences == 3
    assert set(times.seconds.values()) == {0.0}  # each piece took a tick, as nothing did
    assert session.memory.free_blocks() == n_free
    assert session.batch.n_tokens == 3


def test_pieces_compute_what_the_plan_computes(session: Session) -> None:
    measure_operations(session, 2, 20, 1)
    batch = session.batch
    chosen, logits = list(batch.argmax[:2]), [bytes(batch.logits(row)) for row in range(2)]
    session.graph.compute(batch)
    assert list(batch.argmax[:2]) == chosen
    assert [bytes(batch.logits(row)) for row in range(2)] == logits


def test_render_operations_sums_the_columns() -> None:
    columns = [OperationTimes(n, {"RmsNorm": 0.001 * n, "Attention": 0.002}, 0.004) for n in (1, 8)]
    lines = [line.split() for line in render_operations(columns).splitlines()]
    assert lines[2] == ["RmsNorm", "1.000", "8.000"]
    assert lines[4] == ["all", "of", "them", "3.000", "10.000"]
    assert lines[5] == ["in", "one", "run", "4.000", "4.000"]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_command_shows_operations(options: list[str], path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    configure(parser)
    arguments = ["-m", str(path), "-t", "1", "--operations", "--sequences", "1,2", "--prompt", "8", "--runs", "1"]
    assert run(parser.parse_args([*arguments, *options])) == 0
    shown = capsys.readouterr().out
    if options:
        assert [each["n_sequences"] for each in json.loads(shown)] == [1, 2]
    else:
        assert "8 keys each" in shown
        assert "attn_output" in shown
