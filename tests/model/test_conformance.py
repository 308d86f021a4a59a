"""Every architecture in three types of weights: close to float64, closer than llama.cpp, and the same bits always."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emel.kernel.features import available_routes
from emel.tensor.types import TensorType
from model.conformance import Runner, check_chunks, check_company
from model.every_model import EVERY_MODEL
from model.reference_error import IDS, TYPES, reference_of, tensor_digest, total_error
from model.tiny_models import write_tiny_model
from reference.weights import Weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOLERANCE = 2e-6  # of F32 weights with an F32 cache
ROUNDED_TOLERANCE = 0.002
RECORDED = json.loads((Path(__file__).parent / "data/llama_cpp_errors.json").read_text(encoding="utf-8"))["models"]
WITHOUT_RECORD = {"gpt-oss", "llama-layers", "llama-window"}  # see record_llama_cpp.py


@dataclass(frozen=True, slots=True)
class Case:
    """A model file, its logits as computed at once, and the reference's."""

    name: str
    weight_type: str
    path: Path
    logits: NDArray[np.float32]
    expected: NDArray[np.float64]


@pytest.fixture(scope="module", params=[(name, type_) for name in EVERY_MODEL for type_ in TYPES], ids="-".join)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    name, weight_type = request.param
    path = tmp_path_factory.mktemp("tiny") / f"{name}-{weight_type}.gguf"
    write_tiny_model(path, EVERY_MODEL[name](), weight_type)
    with Runner(path) as runner:
        return Case(name, weight_type, path, runner.logits(IDS), reference_of(Weights(path), IDS))


def test_logits_are_those_of_the_reference(case: Case) -> None:
    error = total_error(case.logits, case.expected)
    assert error < ROUNDED_TOLERANCE
    if case.weight_type == "F32":
        with Runner(case.path, kv_type=TensorType.F32) as runner:
            logits = runner.logits(IDS)
            check_chunks(runner, IDS, logits)
        assert total_error(logits, case.expected) < TOLERANCE


def test_logits_are_nearer_to_the_reference_than_those_of_llama_cpp(case: Case) -> None:
    if case.name in WITHOUT_RECORD:
        return
    recorded = RECORDED[f"{case.name}-{case.weight_type}"]
    assert recorded["tensors"] == tensor_digest(case.path), "the model changed: run tests/model/record_llama_cpp.py"
    error = total_error(case.logits, case.expected)
    assert error < recorded["error"]


def test_logits_are_the_same_bits_in_any_chunks_and_company(case: Case) -> None:
    with Runner(case.path, n_threads=1) as runner:
        check_chunks(runner, IDS, case.logits)
        check_company(runner, IDS, case.logits)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_logits_are_the_same_bits_for_any_threads(case: Case, n_threads: int) -> None:
    with Runner(case.path, n_threads=n_threads) as runner:
        assert np.array_equal(runner.logits(IDS), case.logits)


@pytest.mark.parametrize("isa", available_routes())
def test_logits_are_the_same_bits_on_every_route(case: Case, isa: str) -> None:
    with Runner(case.path, isa=isa) as runner:
        assert np.array_equal(runner.logits(IDS), case.logits)
