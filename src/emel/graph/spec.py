"""The rules of a graph, one line each in RULES and PLAN_RULES; they run on every graph before it is planned.

A rule is a generator of faults over the whole graph. GRAPH rules hold for what an architecture file builds and for
what fusing makes of it; PLAN rules only for the latter. Each has a test that breaks it.

(Long because it is all of them.)
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from emel.graph.attention_ops import Attention, RopeStore, RopeTable
from emel.graph.encoder_ops import Mean
from emel.graph.errors import GraphError
from emel.graph.expert_ops import ExpertLinear, ExpertRows, ExpertSum, TopK
from emel.graph.ops import Argmax, Embed, Form, Gated, Gather, Linear, Quantize, RmsNorm, Rows
from emel.graph.state_ops import ShortConv
from emel.graph.widths import operand_widths
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from emel.graph.ops import Graph, Operation, Value

    Rule = Callable[[Graph], Iterator[str]]

MAX_PARTS = 4
MAX_TAPS = 16  # of a short convolution
ACTIVATION_BLOCK = 32  # values that share a scale in a quantised activation


class Violation(NamedTuple):
    """A rule and what breaks it."""

    rule: str
    fault: str


def reads_only_what_was_written(graph: Graph) -> Iterator[str]:
    """Every value is written before it is read."""
    written: set[Value] = set()
    for where, operation in _numbered(graph):
        yield from (f"{where} reads {value.name}" for value in operation.inputs() if value not in written)
        written.update(operation.outputs())


def writes_once(graph: Graph) -> Iterator[str]:
    """Every value is written by one operation."""
    written: set[int] = set()
    for where, operation in _numbered(graph):
        for value in operation.outputs():
            if value.index in written:
                yield f"{where} writes {value.name} again"
            written.add(value.index)


def reads_nothing_spoiled(graph: Graph) -> Iterator[str]:
    """A value whose storage was taken over is not read any more, and is no operand twice in the operation that does."""
    spoiled: set[Value] = set()
    for where, operation in _numbered(graph):
        inputs = list(operation.inputs())
        yield from (f"{where} reads {value.name}" for value in inputs if value in spoiled)
        spoils = list(operation.spoils())
        yield from (f"{where} reads {value.name} twice" for value in spoils if inputs.count(value) > 1)
        spoiled.update(spoils)


def reads_all_it_writes(graph: Graph) -> Iterator[str]:
    """Every value is read by some operation, except logits, scratch and a sum kept for later."""
    read = {value for operation in graph.operations for value in operation.inputs()}
    for where, operation in _numbered(graph):
        kept = {written for written, _ in operation.in_place() if isinstance(operation, RmsNorm)}
        for value in operation.outputs():
            if value.form in (Form.F32, Form.QUANTIZED) and value not in read and value not in kept:
                yield f"{where} writes {value.name}"


def keeps_rows_apart(graph: Graph) -> Iterator[str]:
    """Only a gather or a mean turns token rows into output rows; what remembers its sequence has token rows."""
    for where, operation in _numbered(graph):
        of_tokens = Embed | RopeTable | RopeStore | Attention | ShortConv
        expected = {Rows.TOKENS} if isinstance(operation, of_tokens) else set()
        if isinstance(operation, Gather | Mean):
            if (operation.x.rows, operation.out.rows) != (Rows.TOKENS, Rows.OUTPUTS):
                yield f"{where} gathers {operation.x.rows.value} into {operation.out.rows.value}"
            continue
        seen = {value.rows for value in (*operation.inputs(), *operation.outputs())}
        if len(seen | expected) > 1:
            yield f"{where} mixes {' and '.join(sorted(rows.value for rows in seen | expected))}"


def knows_its_weights(graph: Graph) -> Iterator[str]:
    """Every weight stands at its index of the table; matrices are packed, vectors are plain F32 or F64."""
    for index, weight in enumerate(graph.weights):
        if weight.index != index:
            yield f"{weight.name} has index {weight.index} at {index}"
        if not weight.is_packed and (weight.rows != 1 or weight.type not in (TensorType.F32, TensorType.F64)):
            yield f"{weight.name} is a plain ({weight.rows}, {weight.cols}) {weight.type.name}"
    for where, operation in _numbered(graph):
        for weight in operation.weights():
            if not (0 <= weight.index < len(graph.weights) and graph.weights[weight.index] == weight):
                yield f"{where} reads {weight.name}"


def fits_widths(graph: Graph) -> Iterator[str]:
    """Operands have the widths of their weights and of each other."""
    for where, operation in _numbered(graph):
        for name, seen, wanted in operand_widths(operation):
            if seen != wanted:
                yield f"{where}: {name} is {seen} wide, not {wanted}"


def reads_the_right_kind_of_weight(graph: Graph) -> Iterator[str]:
    """Embeddings and linears read matrices; norms and biases plain F32 vectors; the RoPE table an F64 vector."""
    for where, operation in _numbered(graph):
        matrices, vectors, wanted = [], [], TensorType.F32
        if isinstance(operation, Embed):
            matrices, vectors = [operation.weight], list(operation.added())
        elif isinstance(operation, Linear):
            matrices = [part.weight for part in operation.parts]
            vectors = [part.bias for part in operation.parts if part.bias is not None]
        elif isinstance(operation, RmsNorm | RopeStore | Attention | ShortConv | TopK):
            vectors = list(operation.weights())
        elif isinstance(operation, RopeTable):
            vectors, wanted = [operation.frequencies], TensorType.F64
        yield from (f"{where} reads {weight.name}, a plain vector" for weight in matrices if not weight.is_packed)
        for weight in vectors:
            if weight.is_packed or weight.type is not wanted:
                yield f"{where} reads {weight.name} as a plain {wanted.name} vector"


def fits_heads(graph: Graph) -> Iterator[str]:
    """Query heads are a multiple of key heads, which fit the cache; an even part of a head is rotated."""
    for where, operation in _numbered(graph):
        if isinstance(operation, RopeStore | Attention):
            heads = operation.heads
            if heads.n_kv_heads < 1 or heads.head_dim < 1 or heads.n_heads % heads.n_kv_heads:
                yield f"{where}: {heads.n_heads} query heads over {heads.n_kv_heads} key heads of {heads.head_dim}"
            if heads.n_kv_heads > graph.heads.n_kv_heads or heads.head_dim != graph.heads.head_dim:
                yield f"{where}: {heads} do not fit the cache of {graph.heads}"
        if isinstance(operation, RopeStore) and operation.table is not None:
            n_rot = operation.table.width
            if n_rot < 2 or n_rot % 2 or n_rot > operation.heads.head_dim:
                yield f"{where} rotates {n_rot} of {operation.heads.head_dim} dimensions"


def stores_before_it_attends(graph: Graph) -> Iterator[str]:
    """Each layer of the KV cache is stored once, in order, before it is attended to."""
    n_stored = 0
    for where, operation in _numbered(graph):
        if isinstance(operation, RopeStore):
            if operation.kv_layer != n_stored:
                yield f"{where} stores KV layer {operation.kv_layer} after {n_stored} others"
            n_stored += 1
        if isinstance(operation, Attention) and not 0 <= operation.kv_layer < n_stored:
            yield f"{where} attends to KV layer {operation.kv_layer}, {n_stored} were stored"
    if n_stored != graph.n_kv_layers:
        yield f"{n_stored} KV layers are stored, the graph declares {graph.n_kv_layers}"


def keeps_choices_together(graph: Graph) -> Iterator[str]:
    """Rows grouped by expert come from a grouping, are read by what works row by row, and end in a sum."""
    for where, operation in _numbered(graph):
        counts = {value.name: value.per_row for value in (*operation.inputs(), *operation.outputs())}
        wanted = dict.fromkeys(counts, 1)
        if isinstance(operation, Gated | Quantize):
            wanted = dict.fromkeys(counts, max(counts.values()))
        elif isinstance(operation, TopK):
            wanted[operation.routing.name] = operation.weights_out.width
        elif isinstance(operation, ExpertRows | ExpertLinear | ExpertSum):
            grouped = dict.fromkeys(counts, operation.routing.per_row)
            plain = [operation.x] if isinstance(operation, ExpertRows) else []
            plain = [operation.weights_in, operation.out] if isinstance(operation, ExpertSum) else plain
            wanted = grouped | {value.name: 1 for value in plain}
        yield from (
            f"{where}: {name} has {counts[name]} rows for each row, not {n}"
            for name, n in wanted.items()
            if counts[name] != n
        )
        routings = {value for value in operation.inputs() if value.form is Form.ROUTING}
        expected = {operation.routing} if isinstance(operation, ExpertRows | ExpertLinear | ExpertSum) else set()
        if routings != expected:
            yield f"{where} reads a routing that is none, or one it cannot read"


def keeps_a_state_for_each_layer(graph: Graph) -> Iterator[str]:
    """Each layer of the recurrent state belongs to one operation, in order, and holds what it remembers."""
    n_layers = 0
    for where, operation in _numbered(graph):
        if isinstance(operation, ShortConv):
            if operation.state_layer != n_layers:
                yield f"{where} keeps state layer {operation.state_layer} after {n_layers} others"
            if operation.state_width > graph.state_width:
                yield f"{where} keeps {operation.state_width} values, a slot has {graph.state_width}"
            if not 1 <= operation.n_taps <= MAX_TAPS:
                yield f"{where} has {operation.n_taps} taps"
            n_layers += 1
    if n_layers != graph.n_state_layers:
        yield f"{n_layers} state layers are kept, the graph declares {graph.n_state_layers}"


def ascends(graph: Graph) -> Iterator[str]:
    """Segments never descend, and every layer named exists."""
    for (_, before), (where, operation) in pairwise(_numbered(graph)):
        if operation.segment < before.segment:
            yield f"{where} is in segment {operation.segment} after {before.segment}"
    for where, operation in _numbered(graph):
        if not 0 <= operation.layer < max(graph.n_layers, 1):
            yield f"{where} is in layer {operation.layer} of {graph.n_layers}"


def ends_in_logits(graph: Graph) -> Iterator[str]:
    """A linear, several in pieces, or an encoder's end writes logits of output rows; only an argmax reads them."""
    writers = [(w, o) for w, o in _numbered(graph) if any(v.form is Form.LOGITS for v in o.outputs())]
    if any(isinstance(o, Linear) and o.begin is not None and o.parts[0].out.form is Form.LOGITS for _, o in writers):
        yield from _ends_in_pieces(graph, [operation for _, operation in writers])
        return
    if len(writers) != 1:
        yield f"{len(writers)} operations write logits"
    for where, operation in writers:
        outputs = list(operation.outputs())
        is_decoder = any(isinstance(each, Argmax) for each in graph.operations)
        if not isinstance(operation, Linear if is_decoder else Linear | Gather | Mean) or len(outputs) != 1:
            yield f"{where} writes logits beside other values, or is no linear"
        elif outputs[0].rows is not Rows.OUTPUTS or (is_decoder and outputs[0].width != graph.n_vocab):
            yield f"{where} writes logits of ({outputs[0].rows.value}, {outputs[0].width})"
    for where, operation in _numbered(graph):
        if any((value.form is Form.LOGITS) != isinstance(operation, Argmax) for value in operation.inputs()):
            yield f"{where} reads logits and is no argmax, or the other way round"


def _ends_in_pieces(graph: Graph, writers: list[Operation]) -> Iterator[str]:
    written = 0
    for operation in writers:
        if not isinstance(operation, Linear) or len(operation.parts) != 1 or operation.begin != written:
            yield f"a piece of the logits does not begin at {written}, where the one before it ends"
            return
        written += operation.parts[0].out.width
    readers = [operation for operation in graph.operations if isinstance(operation, Argmax)]
    if written != graph.n_vocab or [each.width for each in readers] != [written]:
        yield f"the pieces are {written} logits of {graph.n_vocab}, and one argmax reads all of them"


def completes_rows(graph: Graph) -> Iterator[str]:
    """Pieces of a row follow each other without a gap, and nothing else reads a value before it is whole."""
    written: dict[Value, int] = {}
    for where, operation in _numbered(graph):
        onto = operation.onto if isinstance(operation, Linear) else None
        for value in operation.inputs():
            if value is not onto and written.get(value, value.width) != value.width:
                yield f"{where} reads {value.name}, of whose {value.width} values {written[value]} are written"
        if isinstance(operation, Linear) and operation.parts[0].out.form is Form.F32:
            begin = 0 if onto is None else written.get(onto, onto.width)
            if (operation.begin or 0) != begin or (onto is not None and len(operation.parts) != 1):
                yield f"{where} writes values from {operation.begin} on, of which {begin} are written"
            if operation.begin is not None:
                written[operation.parts[0].out] = begin + operation.parts[0].weight.rows


def is_fused(graph: Graph) -> Iterator[str]:
    """A norm makes a sum only together with its addend."""
    for where, operation in _numbered(graph):
        if isinstance(operation, RmsNorm) and (operation.delta is None) != (operation.total is None):
            yield f"{where} has an addend or a total without the other"


def has_parts_of_one_kind(graph: Graph) -> Iterator[str]:
    """A linear has 1 to 4 parts, all of block types (with a quantised input) or none (with an f32 input)."""
    for where, operation in _numbered(graph):
        if isinstance(operation, Linear):
            kinds = {part.weight.type.is_quantized for part in operation.parts}
            if not 1 <= len(operation.parts) <= MAX_PARTS or len(kinds) != 1:
                names = ", ".join(f"{part.weight.name} ({part.weight.type.name})" for part in operation.parts)
                yield f"{where} has parts {names or 'none'}"
            elif (operation.x.form is Form.QUANTIZED) != kinds.pop():
                yield f"{where} reads {operation.x.name} as {operation.x.form.value}"


def reads_the_right_form(graph: Graph) -> Iterator[str]:
    """Quantised values have whole blocks and are read by linears or grouped; a norm or gate writes something."""
    for where, operation in _numbered(graph):
        if not isinstance(operation, Linear | Argmax | ExpertRows):
            allowed = (Form.F32, Form.ROUTING)
            yield from (
                f"{where} reads {v.name} as {v.form.value}" for v in operation.inputs() if v.form not in allowed
            )
        if not list(operation.outputs()) and not isinstance(operation, Argmax):
            yield f"{where} writes nothing"
        for value in operation.outputs():
            if value.form is Form.QUANTIZED and value.width % ACTIVATION_BLOCK:
                yield f"{where} quantises {value.width} values, not a multiple of {ACTIVATION_BLOCK}"


RULES: tuple[Rule, ...] = (
    reads_only_what_was_written,
    writes_once,
    reads_nothing_spoiled,
    reads_all_it_writes,
    keeps_rows_apart,
    knows_its_weights,
    fits_widths,
    reads_the_right_kind_of_weight,
    fits_heads,
    stores_before_it_attends,
    keeps_a_state_for_each_layer,
    keeps_choices_together,
    ascends,
    ends_in_logits,
    completes_rows,
)
PLAN_RULES: tuple[Rule, ...] = (*RULES, is_fused, has_parts_of_one_kind, reads_the_right_form)


def violations(graph: Graph, rules: Iterable[Rule]) -> list[Violation]:
    """Every fault of the graph, in the order of the rules."""
    return [Violation(rule.__name__, fault) for rule in rules for fault in rule(graph)]


def check_rules(graph: Graph, rules: Iterable[Rule]) -> None:
    """GraphError naming the first broken rule and how many more there are."""
    found = violations(graph, rules)
    if found:
        rule, fault = found[0]
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise GraphError(f"the graph breaks the rule {rule!r}: {fault}{more}")


class _Where(NamedTuple):
    """An operation in words; put into text only when there is a fault."""

    at: int
    operation: Operation

    def __str__(self) -> str:
        return f"operation {self.at} ({type(self.operation).__name__}, layer {self.operation.layer})"


def _numbered(graph: Graph) -> Iterator[tuple[_Where, Operation]]:
    return ((_Where(index, operation), operation) for index, operation in enumerate(graph.operations))
