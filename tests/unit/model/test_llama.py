from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from emel.gguf import MetadataError, open_gguf
from emel.graph import ops
from emel.graph.ops import Heads
from emel.graph.spec import RULES, violations
from emel.kernel.rope import rope_frequencies
from emel.model import llama
from emel.model.errors import ModelError
from unit.model.llama_files import LlamaFile

if TYPE_CHECKING:
    from pathlib import Path


def parameters_of(tmp_path: Path, **keys: object) -> llama.Parameters:
    """Parameters with keys changed; `a__b` stands for `llama.a.b`."""
    names = {f"llama.{key.replace('__', '.')}": value for key, value in keys.items()}
    with open_gguf(LlamaFile(keys=names).write(tmp_path)) as file:
        return llama.read_parameters(file.metadata, file.tensors)


def graph_of(tmp_path: Path, file: LlamaFile) -> ops.Graph:
    with open_gguf(file.write(tmp_path)) as opened:
        return llama.build(llama.read_parameters(opened.metadata, opened.tensors), opened.tensors)


def test_llama_reads_its_parameters(tmp_path: Path) -> None:
    p = parameters_of(tmp_path)
    assert (p.n_layers, p.d_model, p.d_ff, p.n_vocab, p.n_ctx) == (2, 64, (96, 96), 40, 128)
    assert p.heads == Heads(2, 1, 32)
    assert (p.rope.n_rot, p.rope.base, p.rope.factor) == (32, 10000.0, 1.0)
    assert math.isclose(p.norm_epsilon, 1e-5, rel_tol=1e-6)
    assert p.n_kv_layers == 2


def test_llama_fills_in_what_files_leave_out(tmp_path: Path) -> None:
    p = parameters_of(tmp_path, attention__head_count_kv=None, rope__freq_base=None, rope__dimension_count=None)
    assert p.heads == Heads(2, 2, 32)
    assert (p.rope.n_rot, p.rope.base) == (32, 10000.0)


def test_llama_takes_a_head_dim_of_its_own(tmp_path: Path) -> None:
    p = parameters_of(tmp_path, attention__key_length=48, attention__value_length=48)
    assert p.heads == Heads(2, 1, 48)
    shapes = {each.name: each.shape for each in llama.expected_tensors(p)}
    assert shapes["blk.0.attn_q.weight"] == (96, 64)
    assert shapes["blk.0.attn_output.weight"] == (64, 96)


@pytest.mark.parametrize(
    ("keys", "scale"),
    [
        ({}, 1.0),
        ({"rope__scaling__type": "none", "rope__scaling__factor": 4.0}, 1.0),
        ({"rope__scaling__type": "linear", "rope__scaling__factor": 4.0}, 4.0),
        ({"rope__scale_linear": 2.0}, 2.0),
    ],
)
def test_llama_scales_positions_linearly(tmp_path: Path, keys: dict[str, object], scale: float) -> None:
    assert parameters_of(tmp_path, **keys).rope.factor == scale


@pytest.mark.parametrize(
    "key",
    [
        "context_length",
        "embedding_length",
        "block_count",
        "feed_forward_length",
        "attention__head_count",
        "attention__layer_norm_rms_epsilon",
    ],
)
def test_llama_names_a_missing_key(tmp_path: Path, key: str) -> None:
    with pytest.raises(MetadataError, match=f"metadata 'llama.{key.replace('__', '.')}' is missing"):
        parameters_of(tmp_path, **{key: None})


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"block_count": 0}, "'llama.block_count' is 0: 1 to 4096 are allowed"),
        ({"block_count": 2**31}, "'llama.block_count' is 2147483648: 1 to 4096 are allowed"),
        ({"attention__head_count": 0}, "'llama.attention.head_count' is 0: 1 to"),
        ({"attention__head_count": 65}, "'llama.attention.key_length' is 0: 1 to"),
        ({"attention__head_count_kv": 3}, "'llama.attention.head_count_kv' is 3: it must divide the 2 query heads"),
        ({"attention__value_length": 16}, "'llama.attention.value_length' is 16: it must equal the key length 32"),
        ({"attention__layer_norm_rms_epsilon": 0.0}, "it must be positive and finite"),
        ({"rope__freq_base": math.inf}, "'llama.rope.freq_base' is inf: it must be positive and finite"),
        ({"rope__dimension_count": 31}, "'llama.rope.dimension_count' is 31: an even number up to 32 is needed"),
        ({"rope__dimension_count": 34}, "'llama.rope.dimension_count' is 34"),
        ({"rope__scaling__type": "su"}, "'llama.rope.scaling.type' is 'su': EMEL knows 'none', 'linear', 'yarn'"),
        ({"expert_count": 8, "expert_used_count": 9}, "'llama.expert_used_count' is 9: 1 to 8 are allowed"),
        ({"expert_count": 1025}, "'llama.expert_count' is 1025: 1 to 1024 are allowed"),
    ],
)
def test_llama_refuses_what_it_cannot_run(tmp_path: Path, keys: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        parameters_of(tmp_path, **keys)


def test_llama_needs_an_embedding(tmp_path: Path) -> None:
    with (
        open_gguf(LlamaFile(tensors={"token_embd.weight": None}).write(tmp_path)) as file,
        pytest.raises(ModelError, match=r"lacks tensor 'token_embd\.weight'"),
    ):
        llama.read_parameters(file.metadata, file.tensors)


def test_llama_graph_obeys_the_rules(tmp_path: Path) -> None:
    assert violations(graph_of(tmp_path, LlamaFile()), RULES) == []


def logits_weight(graph: ops.Graph) -> str:
    linears = [operation for operation in graph.operations if isinstance(operation, ops.Linear)]
    return linears[-1].parts[0].weight.name


def test_llama_output_is_tied_unless_the_file_has_its_own(tmp_path: Path) -> None:
    tied = graph_of(tmp_path, LlamaFile())
    assert logits_weight(tied) == "token_embd.weight"
    assert sum(weight.name == "token_embd.weight" for weight in tied.weights) == 1
    own = graph_of(tmp_path, LlamaFile(tensors={"output.weight": (40, 64)}))
    assert logits_weight(own) == "output.weight"


def test_llama_adds_biases_where_the_file_has_them(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, LlamaFile(tensors={"blk.1.attn_q.bias": (64,), "blk.0.ffn_down.bias": (64,)}))
    biases = [
        part.bias.name
        for operation in graph.operations
        if isinstance(operation, ops.Linear)
        for part in operation.parts
        if part.bias is not None
    ]
    assert biases == ["blk.0.ffn_down.bias", "blk.1.attn_q.bias"]


def test_llama_last_layer_computes_output_rows_alone(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, LlamaFile())
    kinds = [type(operation).__name__ for operation in graph.operations if operation.layer == 1]
    behind = kinds[kinds.index("Gather") :]
    assert behind[:2] == ["Gather", "Gather"]
    assert kinds[: kinds.index("Gather")].count("Linear") == 3
    assert behind.count("Linear") == 5  # o, gate, up, down, logits


def test_llama_rope_frequencies_use_the_files_factors(tmp_path: Path) -> None:
    for tensors in ({}, {"rope_freqs.weight": (16,)}):
        with open_gguf(LlamaFile(tensors=dict(tensors)).write(tmp_path)) as file:
            parameters = llama.read_parameters(file.metadata, file.tensors)
            (vector,) = llama.derived_vectors(parameters, file, parameters.n_ctx)
            plain = rope_frequencies(10000.0, 32)
            got = memoryview(vector.data).tolist()
            assert vector.name == "rope.frequencies"
            if tensors:
                factors = memoryview(file.tensor_data("rope_freqs.weight")).cast("f").tolist()
                assert got == [value / factor for value, factor in zip(plain, factors, strict=True)]
                assert got != plain.tolist()
            else:
                assert got == plain.tolist()
