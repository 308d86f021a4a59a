from __future__ import annotations

import pytest

from emel.graph.builder import GraphBuilder
from emel.graph.errors import GraphError
from emel.graph.ops import Activation, Form, Heads, Linear, Rows
from emel.tensor.types import TensorType

F32 = TensorType.F32


@pytest.fixture
def builder() -> GraphBuilder:
    return GraphBuilder(heads=Heads(2, 1, 8), n_vocab=10)


def test_builder_refuses_operands_that_do_not_fit(builder: GraphBuilder) -> None:
    x = builder.embed(builder.matrix("e", 10, 16, F32))
    narrow = builder.linear(x, builder.matrix("narrow", 8, 16, F32))
    with pytest.raises(GraphError, match="linear 'square' reads 8 values, its input has 16"):
        builder.linear(x, builder.matrix("square", 8, 8, F32))
    with pytest.raises(GraphError, match="bias 'b' has 3 values, 'narrow' writes 8"):
        builder.linear(x, builder.matrix("narrow", 8, 16, F32), builder.vector("b", 3))
    with pytest.raises(GraphError, match=r"rms_norm of 16 values with a weight of 3 \('b'\)"):
        builder.rms_norm(x, builder.vector("b", 3), 1e-5)
    with pytest.raises(GraphError, match=r"add of \(tokens, 16\) and \(tokens, 8\): shapes must be equal"):
        builder.add(x, narrow)
    with pytest.raises(GraphError, match=r"short_conv of 16 values \(three parts\) with 3 taps in 3 values"):
        builder.short_conv(x, builder.vector("b", 3), 3)
    three = builder.linear(x, builder.matrix("three", 3, 16, F32))
    with pytest.raises(GraphError, match="short_conv: bias 'b' has 3 values, not 1"):
        builder.short_conv(three, builder.vector("b", 3), 3, builder.vector("b", 3))
    _, routing = builder.top_k(narrow, 2)
    with pytest.raises(GraphError, match="top_k: 9 of 8 experts"):
        builder.top_k(narrow, 9)
    with pytest.raises(GraphError, match="top_k: bias 'b' has 3 values for 8 experts"):
        builder.top_k(narrow, 2, bias=builder.vector("b", 3))
    with pytest.raises(GraphError, match="top_k: a scale of 0 leaves nothing"):
        builder.top_k(narrow, 2, scale=0)
    with pytest.raises(GraphError, match=r"expert_linear 'three' is \(3, 16\) for 8 experts of 16"):
        builder.expert_linear(x, routing, builder.matrix("three", 3, 16, F32))
    with pytest.raises(GraphError, match="bias 'b' has 3 values, 'narrow' writes 8"):
        builder.expert_linear(x, routing, builder.matrix("narrow", 8, 16, F32), builder.vector("b", 3))
    with pytest.raises(GraphError, match=r"add: the gate is \(tokens, 8\), not \(tokens, 1\)"):
        builder.add(x, x, gate=narrow)
    with pytest.raises(GraphError, match="add: a scale of 0 adds nothing"):
        builder.add(x, x, scale=0)
    with pytest.raises(GraphError, match="logits: a scale of 0 leaves nothing"):
        builder.logits(x, builder.matrix("e", 10, 16, F32), scale=0)
    with pytest.raises(GraphError, match=r"gated of \(tokens, 16\) and \(outputs, 16\)"):
        builder.gated(x, builder.gather(x))
    with pytest.raises(GraphError, match="gated: the clamped swish needs a value to multiply"):
        builder.gated(x, None, Activation.CLAMPED_SWISH)


def test_builder_logits_are_output_rows_outside_the_arena(builder: GraphBuilder) -> None:
    x = builder.gather(builder.embed(builder.matrix("e", 10, 16, F32)))
    logits = builder.logits(x, builder.matrix("e", 10, 16, F32))
    assert (logits.form, logits.rows, logits.width) == (Form.LOGITS, Rows.OUTPUTS, 10)


def test_builder_takes_one_matrix_at_a_time(builder: GraphBuilder) -> None:
    x = builder.embed(builder.matrix("e", 10, 16, F32))
    for name in "qkv":
        builder.linear(x, builder.matrix(name, 16, 16, F32))
    linears = [o for o in builder.finish().operations if isinstance(o, Linear)]
    assert [len(linear.parts) for linear in linears] == [1, 1, 1]
