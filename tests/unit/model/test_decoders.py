"""What holds for every decoder's file: tensors named when they are wrong, graphs that obey the rules."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from emel.gguf import open_gguf
from emel.graph.assembler import assemble
from emel.graph.capacity import Capacity
from emel.graph.spec import RULES, violations
from emel.model.errors import ModelError
from emel.model.loader import check_description, describe_file
from emel.tensor.types import TensorType
from model.tiny_models import TINY_MODELS, write_tiny_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emel.gguf import TensorInfo
    from emel.model.loader import ModelDescription

OPTIONAL = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight", "output.weight")


@pytest.fixture(scope="module", params=TINY_MODELS)
def description(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelDescription]:
    path = tmp_path_factory.mktemp("tiny") / "model.gguf"
    write_tiny_model(path, TINY_MODELS[request.param](), "Q8_0")
    with open_gguf(path) as file:
        yield describe_file(file)


def refusal(description: ModelDescription, tensors: dict[str, TensorInfo]) -> str:
    with pytest.raises(ModelError) as caught:
        check_description(replace(description, tensors=tensors))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_decoder_files_are_accepted(description: ModelDescription) -> None:
    check_description(description)


def test_decoder_names_each_missing_tensor(description: ModelDescription) -> None:
    for name, info in description.tensors.items():
        if name in OPTIONAL or (name.endswith(".bias") and description.name != "qwen2"):
            continue
        line = refusal(description, {each: other for each, other in description.tensors.items() if each != name})
        assert line == f"the file lacks tensor {name!r} {info.shape} that a {description.name} model needs"


def test_decoder_names_each_misshapen_tensor(description: ModelDescription) -> None:
    for name, info in description.tensors.items():
        shape = (*info.shape[:-1], info.shape[-1] + 32)
        line = refusal(description, {**description.tensors, name: replace(info, shape=shape)})
        assert line == f"tensor {name!r} has shape {shape}: the metadata asks for {info.shape}"


def test_decoder_names_surplus_tensors(description: ModelDescription) -> None:
    info = next(iter(description.tensors.values()))
    for name in ("blk.0.ffn_gate_exps.weight", "blk.99.attn_q.weight", "position_embd.weight"):
        line = refusal(description, {**description.tensors, name: replace(info, name=name)})
        assert f"the file has tensor {name!r} that EMEL does not know in a {description.name} model" in line


def test_decoder_takes_rope_factors_of_the_right_number(description: ModelDescription) -> None:
    n = description.parameters.rope.n_rot // 2  # type: ignore[attr-defined]
    for name in OPTIONAL[:3]:
        factors = replace(next(iter(description.tensors.values())), name=name, shape=(n,), type=TensorType.F32)
        check_description(replace(description, tensors={**description.tensors, name: factors}))


def test_decoder_graphs_obey_the_rules(description: ModelDescription) -> None:
    architecture = description.architecture
    graph = architecture.build(description.parameters, description.tensors)
    assert violations(graph, RULES) == []
    assemble(lambda: graph, Capacity(32, 8, 2, 16))
    assert graph.n_layers == description.parameters.n_layers
    assert graph.n_kv_layers == description.parameters.n_kv_layers


def test_decoder_last_layers_compute_wanted_rows_alone(description: ModelDescription) -> None:
    graph = description.architecture.build(description.parameters, description.tensors)
    kinds = [type(operation).__name__ for operation in graph.operations if operation.segment == graph.n_segments - 2]
    assert kinds.count("Gather") == 2
    assert kinds[: kinds.index("Gather")].count("Linear") == 3  # q, k, v
    assert kinds[kinds.index("Gather") :].count("Linear") == 4  # attn_output, gate, up, down
