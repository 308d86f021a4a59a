from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import gguf
import pytest

from emel._native import abi
from emel.gguf import GgufError, GgufFile, MetadataError
from emel.graph.batch import Batch, Outputs
from emel.graph.capacity import Capacity
from emel.graph.reservation import ReservedGraph
from emel.io.errors import SourceError
from emel.kernel.loading import load_packed
from emel.kernel.pool import LanePool
from emel.memory.kv import KvCache
from emel.model import loader
from emel.model.errors import ModelError
from emel.model.loader import Load, LoaderContext, LoaderMachine, State, load_model
from emel.sm import UnexpectedEvent
from unit.model.llama_files import LlamaFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from emel.kernel.packing import PackedWeights

TYPES = ["F32", "F16", "Q4_0", "Q4_1", "Q8_0"]


@pytest.fixture
def pool() -> Iterator[LanePool]:
    with LanePool(2) as pool:
        yield pool


@pytest.mark.parametrize("type_name", TYPES)
def test_loaded_models_can_be_reserved_and_run(tmp_path: Path, pool: LanePool, type_name: str) -> None:
    file = LlamaFile(matrix_type=gguf.GGMLQuantizationType[type_name])
    with load_model(file.write(tmp_path), pool) as model:
        p = model.parameters
        cache = KvCache(n_kv_layers=p.n_kv_layers, heads=p.heads, n_ctx=32)
        capacity = Capacity(4, 1, 1, cache.n_blocks)
        with ReservedGraph(model.build, model.weights, capacity, pool=pool, route=int(abi.Isa.SCALAR)) as graph:
            batch = Batch(capacity, p.n_vocab, cache.binding)
            sequence = cache.open()
            batch.add([1, 2, 3], cache.reserve(sequence, 3), sequence, outputs=Outputs.LAST)
            graph.compute(batch)
            for _ in range(5):
                token = batch.argmax[0]
                assert 0 <= token < p.n_vocab
                batch.clear()
                batch.add_token(token, cache.reserve(sequence, 1), sequence)
                graph.compute(batch)
            assert batch.bad_layer[0] == -1
        cache.close()


def test_vectors_of_other_types_are_kept_as_floats(tmp_path: Path, pool: LanePool) -> None:
    file = LlamaFile(types={"output_norm.weight": gguf.GGMLQuantizationType.F16})
    with load_model(file.write(tmp_path), pool) as model:
        assert model.weights.locate("output_norm.weight").n_bytes == 64 * 4


def test_files_stay_open_only_in_loaded_models(tmp_path: Path, pool: LanePool) -> None:
    model = load_model(LlamaFile().write(tmp_path), pool)
    metadata = model.metadata
    model.close()
    model.close()
    assert metadata.get_str("general.architecture") == "llama"
    with pytest.raises(SourceError):
        model.description.file.tensor_data("token_embd.weight")


def fail(path: Path | str, pool: LanePool) -> LoaderContext:
    """The context of a load that fails."""
    context = LoaderContext(pool)
    machine = LoaderMachine(context)
    machine.dispatch(Load(path))
    assert machine.state is State.FAILED
    assert context.model is None
    assert context.error is not None
    if context.file is not None:
        with pytest.raises(SourceError):
            _ = context.file.n_bytes
    with pytest.raises(UnexpectedEvent):
        machine.dispatch(Load(path))
    return context


@pytest.mark.parametrize(
    ("file", "error", "message"),
    [
        (LlamaFile(architecture="mamba9"), ModelError, "architecture 'mamba9' is unknown to EMEL; known are bert, "),
        (LlamaFile(keys={"llama.block_count": None}), MetadataError, "metadata 'llama.block_count' is missing"),
        (LlamaFile(tensors={"blk.1.ffn_up.weight": None}), ModelError, "lacks tensor 'blk.1.ffn_up.weight' (96, 64)"),
        (LlamaFile(tensors={"blk.0.attn_q_norm.weight": (32,)}), ModelError, "has tensor 'blk.0.attn_q_norm.weight'"),
        (
            LlamaFile(tensors={"blk.0.ffn_up.weight": (64, 96)}),
            ModelError,
            "tensor 'blk.0.ffn_up.weight' has shape (64, 96): the metadata asks for (96, 64)",
        ),
        (
            LlamaFile(matrix_type=gguf.GGMLQuantizationType.I8),
            ModelError,
            "is I8, which EMEL cannot compute with",
        ),
    ],
)
def test_loader_fails_with_one_error_and_closes_the_file(
    tmp_path: Path, pool: LanePool, file: LlamaFile, error: type[Exception], message: str
) -> None:
    path = file.write(tmp_path)
    context = fail(path, pool)
    assert isinstance(context.error, error)
    assert message in str(context.error)
    assert "\n" not in str(context.error)
    with pytest.raises(error):
        load_model(path, pool)


def test_loader_reports_files_it_cannot_open(tmp_path: Path, pool: LanePool) -> None:
    assert isinstance(fail(tmp_path / "none.gguf", pool).error, SourceError)
    (tmp_path / "bad.gguf").write_bytes(b"GGUX" + bytes(60))
    assert isinstance(fail(tmp_path / "bad.gguf", pool).error, GgufError)


def test_loader_needs_an_architecture(tmp_path: Path, pool: LanePool) -> None:
    path = tmp_path / "empty.gguf"
    path.write_bytes(b"GGUF" + (3).to_bytes(4, "little") + bytes(16))
    error = fail(path, pool).error
    assert isinstance(error, MetadataError)
    assert "'general.architecture' is missing" in str(error)


@pytest.mark.parametrize("error", [MemoryError("cannot allocate"), RuntimeError("refused")])
def test_loader_reports_a_failed_packing(
    tmp_path: Path, pool: LanePool, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_arguments: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr(loader, "load_packed", fails)
    assert fail(LlamaFile().write(tmp_path), pool).error is error


def test_loader_reports_a_file_that_shrank(tmp_path: Path, pool: LanePool, monkeypatch: pytest.MonkeyPatch) -> None:
    path = LlamaFile().write(tmp_path)
    check = loader.check_description

    def shrink_then_check(description: loader.ModelDescription) -> None:
        check(description)
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size // 2)

    monkeypatch.setattr(loader, "check_description", shrink_then_check)
    context = LoaderContext(pool)
    LoaderMachine(context).dispatch(Load(path))
    assert isinstance(context.error, SourceError)


def test_loader_reports_a_file_that_shrinks_while_it_is_packed(
    tmp_path: Path, pool: LanePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = LlamaFile().write(tmp_path)

    def shrink_then_load(*arguments: Any, **options: Any) -> PackedWeights:  # the vectors have been read
        os.truncate(path, 64)
        return load_packed(*arguments, **options)

    monkeypatch.setattr(loader, "load_packed", shrink_then_load)
    error = fail(path, pool).error
    assert isinstance(error, SourceError)
    assert re.search(r"shrank from \d+ to at most \d+ bytes while it was read: fetch it again", str(error))


def test_loader_reads_derived_vectors_from_a_file_that_may_shrink(
    tmp_path: Path, pool: LanePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = LlamaFile(tensors={"rope_freqs.weight": (16,)}).write(tmp_path)
    monkeypatch.setattr(GgufFile, "prefetch", lambda _file: os.truncate(path, 64))
    error = fail(path, pool).error
    assert isinstance(error, SourceError)
    assert "to 64 bytes while it was in use: fetch it again" in str(error)
