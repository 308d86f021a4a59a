from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from emel._native import abi
from emel.graph import ops, spec
from emel.graph.assembler import assemble
from emel.graph.attention_ops import Pairing
from emel.graph.builder import GraphBuilder
from emel.graph.capacity import Capacity
from emel.graph.encoder_ops import LayerNorm, Mean
from emel.graph.errors import GraphError
from emel.graph.fuse import fuse
from emel.graph.ops import Activation, Form, Heads
from unit.graph.tiny import F32, Q8

if TYPE_CHECKING:
    from collections.abc import Callable

N, N_POSITIONS, N_VOCAB = 64, 16, 50
CAPACITY = Capacity(16, 4, 4, 8)


def new_builder() -> GraphBuilder:
    return GraphBuilder(heads=Heads(2, 2, 32), n_vocab=N_VOCAB)


def encoder(*, is_mean: bool = True, n_dense: int = 0) -> ops.Graph:
    """One layer of bert, and `n_dense` matrices behind the pooling."""
    b = new_builder()
    x = b.embed(
        b.matrix("embedding", N_VOCAB, N, Q8),
        positions=b.vector("positions", N_POSITIONS * N),
        types=b.vector("types", 2 * N),
    )
    x = b.layer_norm(x, b.vector("norm0", N), b.vector("norm0.bias", N), 1e-12)
    b.begin_layer()
    q, k, v = (b.linear(x, b.matrix(name, N, N, Q8), b.vector(f"{name}.bias", N)) for name in "qkv")
    a = b.attention(b.rope_store(q, k, v, None, pairing=Pairing.HALVES), scale=0.25, is_causal=False)
    x = b.layer_norm(b.add(x, b.linear(a, b.matrix("o", N, N, Q8))), b.vector("norm1", N), None, 1e-12)
    h = b.gated(b.linear(x, b.matrix("up", 96, N, Q8)), None, Activation.GELU_ERF)
    x = b.layer_norm(b.add(x, b.linear(h, b.matrix("down", N, 96, Q8))), b.vector("norm2", N), None, 1e-12)
    b.end_layers()
    x = (b.mean if is_mean else b.gather)(x, is_result=not n_dense)
    for index in range(n_dense - 1):
        x = b.linear(x, b.matrix(f"dense{index}", N, N, F32))
    if n_dense:
        b.logits(x, b.matrix("dense", 48, N, F32))
    return b.finish()


@pytest.mark.parametrize("is_mean", [True, False])
@pytest.mark.parametrize("n_dense", [0, 1, 2])
def test_encoder_graph_obeys_the_rules_and_says_how_wide_its_rows_are(*, is_mean: bool, n_dense: int) -> None:
    graph = encoder(is_mean=is_mean, n_dense=n_dense)
    assert spec.violations(graph, spec.RULES) == []
    assert spec.violations(fuse(graph), spec.PLAN_RULES) == []
    assert graph.output_width == (48 if n_dense else N)


def test_layer_norms_take_over_sums_and_quantise_what_matrices_read() -> None:
    fused = fuse(encoder())
    norms = [operation for operation in fused.operations if isinstance(operation, LayerNorm)]
    assert [norm.delta is not None for norm in norms] == [False, True, True]
    assert [norm.quantized is not None for norm in norms] == [True, True, False]
    assert all(norm.out is not None for norm in norms)  # the stream behind them
    assert not any(isinstance(operation, ops.Add) for operation in fused.operations)


def test_records_say_what_encoders_add() -> None:
    assembly = assemble(encoder, CAPACITY)
    names = [weight.name for weight in assembly.graph.weights]
    by_kind = {record.kind: record for record in assembly.records}
    embed, norm, mean = (by_kind[kind] for kind in (abi.OpKind.EMBED, abi.OpKind.LAYER_NORM, abi.OpKind.MEAN))
    assert [names[index] for index in embed.weight[:3]] == ["embedding", "positions", "types"]
    assert [norm.weight[0], norm.weight[1]] == [names.index("norm2"), abi.NO_WEIGHT]
    assert mean.out[0] == abi.LOGITS
    assert mean.dim[0] == N
    assert not mean.flags & abi.OpFlag.OUTPUT_ROWS
    first = next(record for record in assembly.records if record.kind == abi.OpKind.LAYER_NORM)
    assert names[first.weight[1]] == "norm0.bias"
    assert first.layer == 0


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda b, x: b.layer_norm(x, b.vector("w", 63), None, 1e-5), "layer_norm of 64 values with 63 of 'w'"),
        (
            lambda b, x: b.layer_norm(x, b.vector("w", 64), b.vector("b", 65), 1e-5),
            "layer_norm of 64 values with 65 of 'b'",
        ),
        (
            lambda b, _: b.embed(b.matrix("e", N_VOCAB, N, Q8), positions=b.vector("p", 65)),
            "embed: 'p' has 65 values, not rows of 64",
        ),
        (
            lambda b, _: b.embed(b.matrix("e", N_VOCAB, N, Q8), types=b.vector("t", 32)),
            "embed: 't' has 32 values, not rows of 64",
        ),
    ],
)
def test_builder_refuses_operands_that_do_not_fit(
    write: Callable[[GraphBuilder, ops.Value], object], message: str
) -> None:
    builder = new_builder()
    x = builder.embed(builder.matrix("e", N_VOCAB, N, Q8))
    with pytest.raises(GraphError, match=message):
        write(builder, x)


GRAPH = encoder()


def with_last(operation: ops.Operation) -> ops.Graph:
    return replace(GRAPH, operations=(*GRAPH.operations[:-1], operation))


def edited(kind: type[ops.Operation], **fields: object) -> ops.Graph:
    at = next(i for i, operation in enumerate(GRAPH.operations) if isinstance(operation, kind))
    operation = replace(GRAPH.operations[at], **fields)  # type: ignore[arg-type]
    return replace(GRAPH, operations=(*GRAPH.operations[:at], operation, *GRAPH.operations[at + 1 :]))


LAST = GRAPH.operations[-1]
assert isinstance(LAST, Mean)
NORM_WEIGHT = next(weight for weight in GRAPH.weights if weight.name == "norm1")
MATRIX = GRAPH.weights[0]


@pytest.mark.parametrize(
    ("rule", "fault", "graph"),
    [
        (
            spec.keeps_rows_apart,
            "gathers tokens into tokens",
            with_last(replace(LAST, out=replace(LAST.out, rows=ops.Rows.TOKENS))),
        ),
        (
            spec.ends_in_logits,
            "writes logits of (tokens, 64)",
            with_last(replace(LAST, out=replace(LAST.out, rows=ops.Rows.TOKENS))),
        ),
        (
            spec.ends_in_logits,
            "0 operations write logits",
            with_last(replace(LAST, out=replace(LAST.out, form=Form.F32))),
        ),
        (
            spec.ends_in_logits,
            "is no linear",
            replace(GRAPH, operations=(*GRAPH.operations, ops.Argmax(logits=LAST.out, layer=0, segment=2))),
        ),
        (spec.fits_widths, "65 wide, not 64", with_last(replace(LAST, out=replace(LAST.out, width=65)))),
        (
            spec.fits_widths,
            "norm1 is 64 wide, not 65",
            edited(LayerNorm, bias=NORM_WEIGHT, x=replace(LAST.x, width=65)),
        ),
        (spec.fits_widths, "norm1 is 65 wide, not 64", edited(ops.Embed, types=replace(NORM_WEIGHT, cols=65))),
        (spec.reads_the_right_kind_of_weight, "reads embedding as a plain F32 vector", edited(LayerNorm, bias=MATRIX)),
        (spec.reads_the_right_kind_of_weight, "reads embedding as a plain F32 vector", edited(ops.Embed, types=MATRIX)),
    ],
)
def test_rules_hold_for_encoders_too(rule: spec.Rule, fault: str, graph: ops.Graph) -> None:
    faults = [found.fault for found in spec.violations(graph, [rule])]
    assert any(fault in each for each in faults), faults
