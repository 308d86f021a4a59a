"""Every encoder in three types of weights: close to float64, closer than llama.cpp, the same bits in any company."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from emel.engine.embedding import Embedder, checked_pooling
from emel.kernel.features import available_routes, choose_route
from emel.kernel.pool import LanePool
from emel.model.loader import load_model
from emel.model.pooling import Pooling
from emel.tensor.types import TensorType
from model.reference_error import IDS, TYPES, tensor_digest, total_error
from model.tiny_encoders import ENCODER_MODELS
from model.tiny_models import N_CTX, write_tiny_model
from reference.weights import Weights

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

TOLERANCE = 2e-6  # of F32 weights with an F32 cache
ROUNDED_TOLERANCE = 0.001
RECORDED = json.loads((Path(__file__).parent / "data/llama_cpp_embedding_errors.json").read_text(encoding="utf-8"))


class Runner:
    """An encoder, loaded; a context manager."""

    def __init__(
        self,
        path: Path,
        *,
        n_threads: int = 2,
        isa: str | None = None,
        pooling: Pooling | None = None,
        kv_type: TensorType = TensorType.F16,
    ) -> None:
        self._pool = LanePool(n_threads)
        self._model = load_model(path, self._pool)
        self._parameters: Any = self._model.parameters
        self._embedder = Embedder(
            self._model,
            self._pool,
            choose_route(isa).isa,
            pooling=checked_pooling(pooling and pooling.value, self._parameters),
            n_ctx=N_CTX,
            kv_type=kv_type,
        )

    def embed(self, texts: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """(n_texts, width)."""
        out = np.empty((len(texts), self._parameters.embedding_width), np.float32)
        for batch in self._embedder.batches(texts):
            self._embedder.compute(texts[batch.start : batch.stop], out[batch.start : batch.stop])
        return out

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for opened in (self._embedder, self._model, self._pool):
            opened.close()


@dataclass(frozen=True, slots=True)
class Case:
    """A model file, the embedding of one text, and the reference's."""

    name: str
    weight_type: str
    path: Path
    embedding: NDArray[np.float32]
    expected: NDArray[np.float64]


def reference_embedding(weights: Weights) -> NDArray[np.float64]:
    module: Any = import_module(f"reference.{weights.architecture.replace('-', '_')}")
    embedding: NDArray[np.float64] = module.embed(weights, IDS)
    return embedding


@pytest.fixture(scope="module", params=[(name, type_) for name in ENCODER_MODELS for type_ in TYPES], ids="-".join)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    name, weight_type = request.param
    path = tmp_path_factory.mktemp("tiny") / f"{name}-{weight_type}.gguf"
    write_tiny_model(path, ENCODER_MODELS[name](), weight_type)
    with Runner(path) as runner:
        return Case(name, weight_type, path, runner.embed([IDS])[0], reference_embedding(Weights(path)))


def test_embedding_is_that_of_the_reference(case: Case) -> None:
    assert total_error(case.embedding, case.expected) < ROUNDED_TOLERANCE
    if case.weight_type == "F32":
        with Runner(case.path, kv_type=TensorType.F32) as runner:
            assert total_error(runner.embed([IDS])[0], case.expected) < TOLERANCE


def test_embedding_is_nearer_to_the_reference_than_that_of_llama_cpp(case: Case) -> None:
    recorded = RECORDED["models"][f"{case.name}-{case.weight_type}"]
    assert recorded["tensors"] == tensor_digest(case.path), "the model changed: run record_llama_cpp_embeddings.py"
    assert total_error(case.embedding, case.expected) < recorded["error"]


def test_embedding_is_the_same_bits_alone_and_in_any_list(case: Case) -> None:
    others = [IDS[first : first + n] for first, n in ((0, 1), (3, 17), (5, 35), (0, 16))]
    for n_threads in (1, 3):
        with Runner(case.path, n_threads=n_threads) as runner:
            together = runner.embed([*others, IDS, *others, *[IDS] * 20])
            assert np.array_equal(together[4], case.embedding)
            assert (together[9:] == case.embedding).all()
            assert np.array_equal(together[:4], together[5:9])
            assert np.array_equal(runner.embed([others[2]])[0], together[2])


@pytest.mark.parametrize("isa", available_routes())
def test_embedding_is_the_same_bits_on_every_route(case: Case, isa: str) -> None:
    with Runner(case.path, isa=isa) as runner:
        assert np.array_equal(runner.embed([IDS])[0], case.embedding)


@pytest.mark.parametrize(("pooling", "pooling_type"), [(Pooling.MEAN, 1), (Pooling.CLS, 2), (Pooling.LAST, 3)])
def test_pooling_that_is_asked_for_is_that_of_a_file_that_says_so(
    tmp_path: Path, pooling: Pooling, pooling_type: int
) -> None:
    model = ENCODER_MODELS["bert"]()
    for name, kind in (("none", 0), ("own", pooling_type)):
        write_tiny_model(tmp_path / name, replace(model, keys=model.keys | {"pooling_type": kind}), "F32")
    with Runner(tmp_path / "none", pooling=pooling) as asked, Runner(tmp_path / "own") as own:
        embedding = asked.embed([IDS])[0]
        assert np.array_equal(embedding, own.embed([IDS])[0])
    assert total_error(embedding, reference_embedding(Weights(tmp_path / "own"))) < ROUNDED_TOLERANCE
