"""Every rule is broken once, by the smallest change to a sound graph; the fault must be that rule's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from emel.graph import ops, spec
from emel.graph.attention_ops import Attention, RopeStore, RopeTable
from emel.graph.errors import GraphError
from emel.graph.expert_ops import ExpertLinear, ExpertRows, ExpertSum, TopK
from emel.graph.fuse import fuse
from emel.graph.pieces import cut_rows
from emel.graph.state_ops import ShortConv
from emel.tensor.types import TensorType
from unit.graph.tiny import F16, Q8, Tiny

if TYPE_CHECKING:
    from collections.abc import Callable

O = TypeVar("O", bound=ops.Operation)  # noqa: E741


def change(graph: ops.Graph, kind: type[O], edit: Callable[[O], ops.Operation], *, which: int = 0) -> ops.Graph:
    """The graph with one operation of a kind edited."""
    at = [i for i, operation in enumerate(graph.operations) if isinstance(operation, kind)][which]
    operations = list(graph.operations)
    operations[at] = edit(operations[at])  # type: ignore[arg-type]
    return replace(graph, operations=tuple(operations))


def change_part(graph: ops.Graph, which: int = 0, **fields: Any) -> ops.Graph:
    return change(
        graph, ops.Linear, lambda o: replace(o, parts=(replace(o.parts[0], **fields), *o.parts[1:])), which=which
    )


def drop(graph: ops.Graph, kind: type[ops.Operation]) -> ops.Graph:
    at = next(i for i, operation in enumerate(graph.operations) if isinstance(operation, kind))
    return replace(graph, operations=graph.operations[:at] + graph.operations[at + 1 :])


def widened(value: ops.Value | None, by: int = 1) -> ops.Value:
    assert value is not None
    return replace(value, width=value.width + by)


BUILT = Tiny(has_bias=True, norms_heads=True, has_sinks=True).build()
CONVOLVED = Tiny(n_taps=3).build()
ROUTED = Tiny(n_experts=4, has_bias=True).build()
FUSED = fuse(BUILT)
WEIGHT = BUILT.weights[0]
ROUTED_TOP_K = next(operation for operation in ROUTED.operations if isinstance(operation, TopK))
PIECES = cut_rows(Tiny().build(), {"0.up": 32})
STRAY = ops.Value(999, "stray", ops.Rows.TOKENS, 64)


def pieces_of_up() -> list[ops.Linear]:
    return [each for each in PIECES.operations if isinstance(each, ops.Linear) and each.begin is not None]


PIECES_AT = [each for each in PIECES.operations if isinstance(each, ops.Linear)].index(pieces_of_up()[0])


def weight_named(name: str) -> ops.Weight:
    return next(weight for weight in BUILT.weights if weight.name == name)


BROKEN: list[tuple[Callable[[ops.Graph], object], str, ops.Graph]] = [
    (spec.reads_only_what_was_written, "reads embedding", drop(BUILT, ops.Embed)),
    (spec.reads_only_what_was_written, "reads stray", change(BUILT, ops.Add, lambda o: replace(o, delta=STRAY))),
    (spec.writes_once, "again", replace(BUILT, operations=(*BUILT.operations[:2], *BUILT.operations[1:]))),
    (
        spec.reads_nothing_spoiled,
        "reads linear",
        change(BUILT, Attention, lambda o: replace(o, q=BUILT.operations[6].q)),  # type: ignore[attr-defined]
    ),
    (spec.reads_nothing_spoiled, "twice", change(BUILT, RopeStore, lambda o: replace(o, v=o.k))),
    (spec.reads_all_it_writes, "writes gated", change(BUILT, ops.Linear, lambda o: replace(o, x=STRAY), which=6)),
    (
        spec.keeps_rows_apart,
        "mixes outputs and tokens",
        change(BUILT, ops.Add, lambda o: replace(o, out=replace(o.out, rows=ops.Rows.OUTPUTS))),
    ),
    (
        spec.keeps_rows_apart,
        "gathers outputs into outputs",
        change(BUILT, ops.Gather, lambda o: replace(o, x=replace(o.x, rows=ops.Rows.OUTPUTS))),
    ),
    (
        spec.keeps_rows_apart,
        "mixes outputs and tokens",
        change(BUILT, ops.Embed, lambda o: replace(o, out=replace(o.out, rows=ops.Rows.OUTPUTS))),
    ),
    (spec.knows_its_weights, "has index 0 at 1", replace(BUILT, weights=(WEIGHT, *BUILT.weights))),
    (spec.knows_its_weights, "reads frequencies", replace(BUILT, weights=BUILT.weights[1:])),
    (
        spec.knows_its_weights,
        "is a plain (2, 16) F64",
        replace(BUILT, weights=(replace(WEIGHT, rows=2), *BUILT.weights[1:])),
    ),
    (
        spec.knows_its_weights,
        "is a plain (1, 16) F16",
        replace(BUILT, weights=(replace(WEIGHT, type=F16), *BUILT.weights[1:])),
    ),
    (spec.fits_widths, "out is 65 wide, not 64", change(BUILT, ops.Embed, lambda o: replace(o, out=widened(o.out)))),
    (spec.fits_widths, "out is 33 wide", change(BUILT, RopeTable, lambda o: replace(o, out=widened(o.out)))),
    (spec.fits_widths, "0.q is 64 wide, not 65", change(BUILT, ops.Linear, lambda o: replace(o, x=widened(o.x)))),
    (
        spec.fits_widths,
        "linear.1 is 32 wide, not 64",
        change_part(BUILT, out=replace(STRAY, name="linear.1", width=32)),
    ),
    (spec.fits_widths, "0.k.bias is 32 wide, not 64", change_part(BUILT, bias=weight_named("0.k.bias"))),
    (spec.fits_widths, "0.norm1 is 64 wide, not 65", change(BUILT, ops.RmsNorm, lambda o: replace(o, x=widened(o.x)))),
    (spec.fits_widths, "k is 33 wide, not 32", change(BUILT, RopeStore, lambda o: replace(o, k=widened(o.k)))),
    (
        spec.fits_widths,
        "0.norm1 is 64 wide, not 32",
        change(BUILT, RopeStore, lambda o: replace(o, q_norm=weight_named("0.norm1"))),
    ),
    (spec.fits_widths, "out is 65 wide", change(BUILT, Attention, lambda o: replace(o, out=widened(o.out)))),
    (
        spec.fits_widths,
        "0.norm1 is 64 wide, not 2",
        change(BUILT, Attention, lambda o: replace(o, sinks=weight_named("0.norm1"))),
    ),
    (spec.fits_widths, "97 wide, not 96", change(BUILT, ops.Gated, lambda o: replace(o, up=widened(o.up)))),
    (spec.reads_the_right_kind_of_weight, "reads 0.norm1, a plain", change_part(BUILT, weight=weight_named("0.norm1"))),
    (
        spec.reads_the_right_kind_of_weight,
        "reads 0.q as a plain F32",
        change(BUILT, ops.RmsNorm, lambda o: replace(o, weight=weight_named("0.q"))),
    ),
    (
        spec.reads_the_right_kind_of_weight,
        "reads norm as a plain F64",
        change(BUILT, RopeTable, lambda o: replace(o, frequencies=weight_named("norm"))),
    ),
    (spec.reads_the_right_kind_of_weight, "reads 0.q as a plain F32", change_part(BUILT, bias=weight_named("0.q"))),
    (
        spec.fits_heads,
        "3 query heads over 2 key heads",
        change(BUILT, Attention, lambda o: replace(o, heads=ops.Heads(3, 2, 32))),
    ),
    (
        spec.fits_heads,
        "rotates 34 of 32",
        change(BUILT, RopeStore, lambda o: replace(o, table=widened(o.table, 2))),
    ),
    (
        spec.fits_heads,
        "do not fit the cache of",
        change(BUILT, Attention, lambda o: replace(o, heads=ops.Heads(2, 2, 32))),
    ),
    (spec.fits_heads, "rotates 31 of", change(BUILT, RopeStore, lambda o: replace(o, table=widened(o.table, -1)))),
    (
        spec.stores_before_it_attends,
        "attends to KV layer 1, 1 were stored",
        change(BUILT, Attention, lambda o: replace(o, kv_layer=1)),
    ),
    (
        spec.stores_before_it_attends,
        "stores KV layer 1 after 0 others",
        change(BUILT, RopeStore, lambda o: replace(o, kv_layer=1)),
    ),
    (spec.stores_before_it_attends, "the graph declares 3", replace(BUILT, n_kv_layers=3)),
    (
        spec.keeps_a_state_for_each_layer,
        "keeps state layer 2 after 0 others",
        change(CONVOLVED, ShortConv, lambda o: replace(o, state_layer=2)),
    ),
    (spec.keeps_a_state_for_each_layer, "keeps 1152 values, a slot has 127", replace(CONVOLVED, state_width=127)),
    (
        spec.keeps_a_state_for_each_layer,
        "has 17 taps",
        change(CONVOLVED, ShortConv, lambda o: replace(o, n_taps=17)),
    ),
    (spec.keeps_a_state_for_each_layer, "the graph declares 3", replace(CONVOLVED, n_state_layers=3)),
    (spec.fits_widths, "x is 193 wide, not 192", change(CONVOLVED, ShortConv, lambda o: replace(o, x=widened(o.x)))),
    (
        spec.fits_widths,
        "0.taps is 192 wide, not 128",
        change(CONVOLVED, ShortConv, lambda o: replace(o, n_taps=2)),
    ),
    (
        spec.fits_widths,
        "0.taps is 192 wide, not 64",
        change(CONVOLVED, ShortConv, lambda o: replace(o, bias=o.taps)),
    ),
    (
        spec.keeps_rows_apart,
        "mixes outputs and tokens",
        change(CONVOLVED, ShortConv, lambda o: replace(o, out=replace(o.out, rows=ops.Rows.OUTPUTS))),
    ),
    (
        spec.keeps_choices_together,
        "has 3 rows for each row, not 2",
        change(ROUTED, ExpertRows, lambda o: replace(o, out=replace(o.out, per_row=3))),
    ),
    (
        spec.keeps_choices_together,
        "has 2 rows for each row, not 1",
        change(ROUTED, ExpertSum, lambda o: replace(o, out=replace(o.out, per_row=2))),
    ),
    (
        spec.keeps_choices_together,
        "has 1 rows for each row, not 2",
        change(ROUTED, ops.Gated, lambda o: replace(o, up=replace(STRAY, name="stray"))),
    ),
    (
        spec.keeps_choices_together,
        "has 2 rows for each row, not 3",
        change(ROUTED, TopK, lambda o: replace(o, weights_out=widened(o.weights_out))),
    ),
    (
        spec.keeps_choices_together,
        "reads a routing that is none",
        change(ROUTED, ExpertLinear, lambda o: replace(o, routing=replace(o.routing, form=ops.Form.F32))),
    ),
    (
        spec.keeps_choices_together,
        "or one it cannot read",
        change(ROUTED, ops.Gated, lambda o: replace(o, up=ROUTED_TOP_K.routing)),
    ),
    (
        spec.fits_widths,
        "routing is 4 wide, not 5",
        change(ROUTED, TopK, lambda o: replace(o, scores=widened(o.scores))),
    ),
    (
        spec.fits_widths,
        "0.router.bias is 4 wide, not 5",
        change(ROUTED, TopK, lambda o: replace(o, scores=widened(o.scores))),
    ),
    (
        spec.fits_widths,
        "weights is 3 wide, not 2",
        change(ROUTED, ExpertSum, lambda o: replace(o, weights_in=widened(o.weights_in))),
    ),
    (spec.fits_widths, "out is 65 wide", change(ROUTED, ExpertRows, lambda o: replace(o, out=widened(o.out)))),
    (
        spec.ascends,
        "is in segment 0 after 1",
        change(BUILT, ops.Linear, lambda o: replace(o, segment=0)),
    ),
    (spec.ascends, "is in layer 2 of 2", change(BUILT, ops.Gated, lambda o: replace(o, layer=2))),
    (
        spec.ends_in_logits,
        "0 operations write logits",
        change_part(BUILT, which=14, out=replace(STRAY, rows=ops.Rows.OUTPUTS, width=50)),
    ),
    (
        spec.ends_in_logits,
        "writes logits of (tokens, 50)",
        change_part(BUILT, which=14, out=ops.Value(999, "l", ops.Rows.TOKENS, 50, ops.Form.LOGITS)),
    ),
    (
        spec.ends_in_logits,
        "reads logits and is no argmax",
        change(BUILT, ops.Gated, lambda o: replace(o, up=BUILT.operations[-1].logits)),  # type: ignore[attr-defined]
    ),
    (
        spec.fits_widths,
        "linear.1 is 64 wide, not 1",
        change(BUILT, ops.Add, lambda o: replace(o, gate=replace(STRAY, name="linear.1"))),
    ),
    (
        spec.completes_rows,
        "writes values from 48 on, of which 32 are written",
        change(PIECES, ops.Linear, lambda o: replace(o, begin=48), which=PIECES_AT + 1),
    ),
    (
        spec.completes_rows,
        "of whose 96 values 64 are written",
        change(PIECES, ops.Gated, lambda o: replace(o, up=pieces_of_up()[1].parts[0].out)),
    ),
    (
        spec.completes_rows,
        "writes values from 32 on, of which 0 are written",
        change(PIECES, ops.Linear, lambda o: replace(o, onto=None), which=PIECES_AT + 1),
    ),
    (spec.is_fused, "addend or a total", change(FUSED, ops.RmsNorm, lambda o: replace(o, total=None), which=1)),
    (spec.has_parts_of_one_kind, "has parts none", change(FUSED, ops.Linear, lambda o: replace(o, parts=()))),
    (spec.has_parts_of_one_kind, "0.q (F16)", change_part(FUSED, weight=replace(weight_named("0.q"), type=F16))),
    (
        spec.has_parts_of_one_kind,
        "reads norm.1.q as f32",
        change(FUSED, ops.Linear, lambda o: replace(o, x=replace(o.x, form=ops.Form.F32))),
    ),
    (
        spec.has_parts_of_one_kind,
        "has parts",
        change(FUSED, ops.Linear, lambda o: replace(o, parts=o.parts * 2)),
    ),
    (
        spec.reads_the_right_form,
        "as quantized",
        change(FUSED, ops.Gated, lambda o: replace(o, up=o.up and replace(o.up, form=ops.Form.QUANTIZED))),
    ),
    (
        spec.reads_the_right_form,
        "writes nothing",
        change(FUSED, ops.Gated, lambda o: replace(o, quantized=None)),
    ),
    (
        spec.reads_the_right_form,
        "quantises 65 values",
        change(FUSED, ops.RmsNorm, lambda o: replace(o, quantized=widened(o.quantized))),
    ),
]


@pytest.mark.parametrize(("rule", "fault", "graph"), BROKEN, ids=[f"{r.__name__}-{f}" for r, f, _ in BROKEN])
def test_rule_names_what_breaks_it(rule: Callable[[ops.Graph], object], fault: str, graph: ops.Graph) -> None:
    faults = list(rule(graph))  # type: ignore[call-overload]
    assert any(fault in each for each in faults), faults


def test_every_rule_has_a_test_that_breaks_it() -> None:
    assert {rule for rule, _, _ in BROKEN} == set(spec.PLAN_RULES)


@pytest.mark.parametrize(
    "tiny",
    [
        Tiny(n_experts=4),
        Tiny(n_experts=4, types=(F16,) * 8),
        Tiny(n_taps=3),
        Tiny(),
        Tiny(n_layers=1, types=(F16,) * 8),
        Tiny(types=(Q8, F16) * 4),
        Tiny(gathers=False),
    ],
)
def test_rules_hold_for_sound_graphs(tiny: Tiny) -> None:
    assert spec.violations(tiny.build(), spec.RULES) == []
    assert spec.violations(fuse(tiny.build()), spec.PLAN_RULES) == []


def test_rules_have_a_line_each() -> None:
    for rule in spec.PLAN_RULES:
        assert rule.__doc__ is not None
        assert "\n" not in rule.__doc__


def test_check_rules_raises_the_first_and_counts_the_rest() -> None:
    graph = replace(drop(BUILT, ops.Embed), n_kv_layers=5)
    with pytest.raises(GraphError, match=r"the graph breaks the rule 'reads_only_what_was_written': .* \(and 2 more\)"):
        spec.check_rules(graph, spec.RULES)
    spec.check_rules(BUILT, spec.RULES)


def test_a_type_without_kernels_is_not_the_rules_business() -> None:
    tiny = Tiny(types=(TensorType.Q6_K,) * 8, d_model=256, d_ff=256, head_dim=128)
    assert spec.violations(fuse(tiny.build()), spec.PLAN_RULES) == []
