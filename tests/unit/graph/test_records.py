"""Records against the graph they came from: equal bits, whatever was fused, shared, freed and reused on the way."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emel._native import abi
from emel.graph.assembler import Assembly, assemble
from emel.graph.capacity import Capacity
from emel.graph.expert_ops import Gating
from emel.graph.ops import Activation
from emel.graph.records import Access, unmet
from unit.graph.interpreters import Arena, FakeSizes, Step, run_graph, run_records
from unit.graph.tiny import F16, F32, Q8, Tiny, float_weights, raw_weights


def assemble_tiny(tiny: Tiny, max_tokens: int = 6, max_outputs: int = 3) -> Assembly:
    return assemble(tiny.build, Capacity(max_tokens, max_outputs, 1, 4), sizes=FakeSizes())


def kinds(assembly: Assembly, layer_segment: int) -> list[str]:
    return [abi.OpKind(r.kind).name for r in assembly.records if r.segment == layer_segment]


TINIES = st.builds(
    Tiny,
    n_layers=st.integers(1, 3),
    n_heads=st.sampled_from([2, 4]),
    n_kv_heads=st.sampled_from([1, 2]),
    n_rot=st.sampled_from([8, 32]),
    types=st.tuples(*[st.sampled_from([Q8, Q8, F32, F16])] * 8),
    has_bias=st.booleans(),
    is_tied=st.booleans(),
    gathers=st.booleans(),
    norms_heads=st.booleans(),
    rotates=st.booleans(),
    activation=st.sampled_from([Activation.SILU, Activation.GELU_TANH, Activation.GELU_ERF]),
    has_gate=st.booleans(),
    magnitude=st.sampled_from([1.0, 1.25]),
    residual_scale=st.sampled_from([1.0, 0.25]),
    logit_scale=st.sampled_from([1.0, 0.125]),
    logit_cap=st.sampled_from([0.0, 3.0]),
    norms_results=st.booleans(),
    norms_inputs=st.booleans(),
    has_shared_gate=st.booleans(),
    n_experts=st.sampled_from([0, 0, 4]),
    gating=st.sampled_from(Gating),
    n_taps=st.sampled_from([0, 1, 3]),
    window=st.integers(0, 4),
    is_causal=st.booleans(),
    cap=st.sampled_from([0.0, 5.0]),
    has_sinks=st.booleans(),
)


@given(tiny=TINIES, n_first=st.integers(1, 6), n_then=st.integers(1, 3), every_row=st.booleans())
@settings(max_examples=25, deadline=None)
def test_records_compute_what_the_graph_says(tiny: Tiny, n_first: int, n_then: int, every_row: bool) -> None:
    graph = tiny.build()
    weights = float_weights(graph, raw_weights(graph, seed=n_first))
    assembly = assemble_tiny(tiny)
    plain, recorded, reversed_ = Step([]), Step([]), Step([])
    arena, other_arena = Arena(assembly.placement.n_bytes), Arena(assembly.placement.n_bytes)
    position = 0
    for n in (n_first, n_then):
        tokens = [(7 * i + position) % tiny.n_vocab for i in range(n)]
        rows = list(range(n))[-3:] if every_row else [n - 1]
        results = []
        for step in (plain, recorded, reversed_):
            step.tokens, step.first_position, step.output_rows = tokens, position, rows
        results.append(run_graph(graph, weights, plain))
        results.append(run_records(assembly, weights, recorded, arena))
        results.append(run_records(assembly, weights, reversed_, other_arena, reverse_unmet=True))
        assert np.isfinite(results[0]).all()
        assert results[0].shape == (len(rows), tiny.n_vocab)
        assert np.array_equal(results[0], results[1])
        assert np.array_equal(results[0], results[2])
        position += n


def test_records_of_no_output_rows_are_well_formed() -> None:
    tiny = Tiny()
    graph = tiny.build()
    assembly = assemble_tiny(tiny)
    arena = Arena(assembly.placement.n_bytes)
    logits = run_records(assembly, float_weights(graph, raw_weights(graph)), Step([1, 2, 3]), arena)
    assert logits.shape == (0, tiny.n_vocab)


def test_records_of_a_layer_are_the_fewest() -> None:
    assembly = assemble_tiny(Tiny(n_layers=3))
    assert kinds(assembly, 0) == ["ROPE_TABLE", "EMBED"]
    assert kinds(assembly, 1) == [
        *("RMS_NORM", "MATMUL", "ROPE_STORE", "ATTENTION", "QUANTIZE", "MATMUL"),
        *("RMS_NORM", "MATMUL", "GATED", "MATMUL"),
    ]
    assert kinds(assembly, 3) == [
        *("RMS_NORM", "MATMUL", "ROPE_STORE", "ATTENTION", "GATHER", "GATHER", "QUANTIZE", "MATMUL"),
        *("RMS_NORM", "MATMUL", "GATED", "MATMUL"),
    ]
    assert kinds(assembly, 4) == ["RMS_NORM", "MATMUL", "ARGMAX"]


def test_records_join_matrices_of_one_kind_only() -> None:
    mixed = (Q8, F16, Q8, Q8, Q8, Q8, Q8, Q8)
    parts = [r.dim[1] for r in assemble_tiny(Tiny(n_layers=1, types=mixed)).records if r.kind == abi.OpKind.MATMUL]
    assert parts == [1, 1, 1, 1, 2, 1, 1]
    same = [r.dim[1] for r in assemble_tiny(Tiny(n_layers=1)).records if r.kind == abi.OpKind.MATMUL]
    assert same == [3, 1, 2, 1, 1]


def test_records_of_float_models_quantise_nothing() -> None:
    assembly = assemble_tiny(Tiny(types=(F32, F16, F32, F16, F32, F16, F32, F16)))
    assert all(r.kind != abi.OpKind.QUANTIZE for r in assembly.records)
    assert all(r.out[1] == abi.NONE for r in assembly.records if r.kind in (abi.OpKind.RMS_NORM, abi.OpKind.GATED))


def test_records_name_the_layer_that_wrote_a_value() -> None:
    assembly = assemble_tiny(Tiny(n_layers=2))
    norms = [(r.segment, r.layer) for r in assembly.records if r.kind == abi.OpKind.RMS_NORM]
    assert norms == [(1, 0), (1, 0), (2, 0), (2, 1), (3, 1)]


def test_records_segments_ascend_from_zero() -> None:
    segments = [r.segment for r in assemble_tiny(Tiny(n_layers=3)).records]
    assert segments[0] == 0
    assert all(0 <= after - before <= 1 for before, after in pairwise(segments))


def test_records_bias_and_unused_operands_are_marked() -> None:
    assembly = assemble_tiny(Tiny(n_layers=1, has_bias=True))
    matmul = next(r for r in assembly.records if r.kind == abi.OpKind.MATMUL)
    names = [assembly.graph.weights[matmul.weight[i]].name for i in (0, 1, 2, 4, 5, 6)]
    assert names == ["0.q", "0.k", "0.v", "0.q.bias", "0.k.bias", "0.v.bias"]
    assert (matmul.weight[3], matmul.weight[7]) == (abi.NO_WEIGHT, abi.NO_WEIGHT)
    assert (matmul.in_[1], matmul.out[3]) == (abi.NONE, abi.NONE)


def span(begin: int, end: int) -> tuple[str, int, int]:
    return ("arena", begin, end)


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (Access((span(64, 128),), (span(128, 192),)), [0]),  # reads and writes elsewhere
        (Access((span(32, 96),), (span(128, 192),)), []),  # reads what the first writes
        (Access((span(128, 192),), (span(63, 64),)), []),  # writes what the first writes
        (Access((), (span(200, 256),)), []),  # writes what the first reads
        (Access((("kv", 200, 256),), (("kv", 0, 64),)), [0]),  # other memory at the same offsets
    ],
)
def test_unmet_needs_disjoint_bytes(second: Access, expected: list[int]) -> None:
    first = Access((span(192, 256),), (span(0, 64),))
    assert list(unmet([first, second])) == expected


def test_unmet_looks_back_to_where_lanes_last_met() -> None:
    first = Access((), (span(0, 64),))
    other = Access((), (span(64, 128),))
    reads_first = Access((span(0, 64),), (span(128, 192),))
    assert list(unmet([first, other, reads_first])) == [0]
    assert list(unmet([first, other, replace_writes(other)])) == [0, 1]


def replace_writes(access: Access) -> Access:
    return access._replace(writes=(span(256, 320),))


def test_unmet_never_marks_the_last_operation() -> None:
    assert list(unmet([Access((), (span(0, 64),))])) == []
    assert not assemble_tiny(replace(Tiny(), n_layers=1)).records[-1].flags & abi.OpFlag.NO_BARRIER


def test_records_of_norms_behind_the_blocks_are_one_each() -> None:
    """Gemma's layer: what attention and feed-forward give is normed, and the next norm adds it to the stream."""
    assembly = assemble_tiny(Tiny(n_layers=2, norms_results=True))
    assert kinds(assembly, 1) == [
        *("RMS_NORM", "MATMUL", "ROPE_STORE", "ATTENTION", "QUANTIZE", "MATMUL", "RMS_NORM"),
        *("RMS_NORM", "MATMUL", "GATED", "MATMUL", "RMS_NORM"),
    ]
    first, after_attention, sum_, *_ = (r for r in assembly.records if r.kind == abi.OpKind.RMS_NORM)
    assert first.in_[1] == after_attention.in_[1] == abi.NONE
    assert (sum_.in_[0], sum_.in_[1]) == (first.in_[0], after_attention.out[0])


def test_records_without_norms_before_the_blocks_add_to_the_stream_themselves() -> None:
    """OLMo 2's layer: matrices read the stream, so that no norm can take the sum over."""
    assembly = assemble_tiny(Tiny(n_layers=2, norms_results=True, norms_inputs=False))
    assert kinds(assembly, 1) == [
        *("QUANTIZE", "MATMUL", "ROPE_STORE", "ATTENTION", "QUANTIZE", "MATMUL", "RMS_NORM", "ADD"),
        *("QUANTIZE", "MATMUL", "GATED", "MATMUL", "RMS_NORM"),
    ]


def test_records_of_experts_quantise_before_they_group() -> None:
    assembly = assemble_tiny(Tiny(n_layers=2, n_experts=4))
    assert kinds(assembly, 1)[6:] == [
        *("RMS_NORM", "MATMUL", "TOP_K", "QUANTIZE", "EXPERT_ROWS"),
        *("EXPERT_MATMUL", "GATED", "EXPERT_MATMUL", "EXPERT_SUM"),
    ]
    parts = [r.dim[1] for r in assembly.records if r.kind == abi.OpKind.EXPERT_MATMUL]
    assert parts == [2, 1, 2, 1]
    floats = assemble_tiny(Tiny(n_layers=1, n_experts=4, types=(F32,) * 8))
    assert "QUANTIZE" not in kinds(floats, 1)
