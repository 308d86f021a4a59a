"""A graph whose matrices are cut by rows, so that the pieces can be streamed apart.

The results are the same bit for bit: every one is the product of a row of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from emel.graph.errors import GraphError
from emel.graph.ops import Argmax, Form, Linear, Part, Weight
from emel.kernel.sizes import ROW_GROUP

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from emel.graph.ops import Graph, Operation, Value


class Piece(NamedTuple):
    """`n_rows` rows of a matrix, from `begin` on; `name` is that of the weight they are."""

    name: str
    begin: int
    n_rows: int


def output_linear(graph: Graph) -> Linear | None:
    """The one linear that writes the logits from a matrix alone; None where there is no such thing to cut."""
    found = [
        each
        for each in graph.operations
        if isinstance(each, Linear) and any(value.form is Form.LOGITS for value in each.outputs())
    ]
    return found[0] if len(found) == 1 and len(found[0].parts) == 1 and found[0].parts[0].bias is None else None


def pieces_of(name: str, n_rows: int, piece_rows: int) -> tuple[Piece, ...]:
    """The pieces of a matrix of `n_rows` rows, `piece_rows` each (a multiple of 16), the last one what is left."""
    if piece_rows < 1 or piece_rows % ROW_GROUP:
        raise GraphError(f"pieces of {piece_rows} rows: a multiple of {ROW_GROUP} is needed")
    return tuple(
        Piece(f"{name}[{begin}]", begin, min(piece_rows, n_rows - begin)) for begin in range(0, n_rows, piece_rows)
    )


def cut_logits(graph: Graph, piece_rows: int) -> Graph:
    """The graph with its output matrix in pieces; GraphError when it has none that can be cut."""
    output = output_linear(graph)
    if output is None:
        raise GraphError("the graph ends in no matrix that could be cut")
    whole = output.parts[0].weight
    weights, values = list(graph.weights), list(graph.values)
    is_shared = any(whole in each.weights() for each in graph.operations if each is not output)
    cut: list[Operation] = []
    for number, piece in enumerate(pieces_of(whole.name, whole.rows, piece_rows)):
        # The first takes the place of the whole, unless that is an embedding too.
        index = whole.index if number == 0 and not is_shared else len(weights)
        weight = Weight(index, piece.name, piece.n_rows, whole.cols, whole.type, is_packed=True)
        weights[index : index + 1] = [weight]
        logits = output.parts[0].out
        out = replace(logits, index=logits.index if number == 0 else len(values), name=piece.name, width=weight.rows)
        values[out.index : out.index + 1] = [out]
        segment = output.segment + 1 + number
        cut.append(replace(output, parts=(Part(out=out, weight=weight),), begin=piece.begin, segment=segment))
    outs = tuple(out for each in cut for out in each.outputs())
    operations: list[Operation] = []
    for operation in graph.operations:
        if operation is output:
            operations += cut
        elif isinstance(operation, Argmax):
            segment = output.segment + 1 + len(cut)
            operations.append(replace(operation, logits=outs[-1], pieces=outs[:-1], segment=segment))
        else:
            operations.append(operation)
    return replace(graph, operations=tuple(operations), weights=tuple(weights), values=tuple(values))


def linears_to_cut(graph: Graph) -> dict[str, Linear]:
    """What reads each matrix that `cut_rows` can cut: one linear, of nothing else and without a bias."""
    readers: dict[str, list[Operation]] = {}
    for operation in graph.operations:
        for weight in operation.weights():
            readers.setdefault(weight.name, []).append(operation)
    return {
        name: operation
        for name, (operation, *others) in readers.items()
        if type(operation) is Linear
        and not others
        and operation.begin is None
        and len(operation.parts) == 1
        and operation.parts[0].bias is None
        and operation.parts[0].out.form is Form.F32
    }


def cut_rows(graph: Graph, piece_rows: Mapping[str, int]) -> Graph:
    """The graph with each of these matrices in pieces of so many rows; KeyError for one that cannot be cut."""
    linears = linears_to_cut(graph)
    cut = {id(linears[name]): n_rows for name, n_rows in piece_rows.items()}
    weights, values = list(graph.weights), list(graph.values)
    operations: list[Operation] = []
    for operation in graph.operations:
        if id(operation) in cut and isinstance(operation, Linear):
            operations += _cut_linear(operation, cut[id(operation)], weights, values)
        else:
            operations.append(operation)
    return replace(graph, operations=tuple(operations), weights=tuple(weights), values=tuple(values))


def _cut_linear(linear: Linear, piece_rows: int, weights: list[Weight], values: list[Value]) -> Iterator[Linear]:
    """The pieces, each onto the value of the one before; the last one's is that of the whole."""
    (part,) = linear.parts
    whole, onto = part.weight, None
    for piece in pieces_of(whole.name, whole.rows, piece_rows):
        index = len(weights) if piece.begin else whole.index
        weight = Weight(index, piece.name, piece.n_rows, whole.cols, whole.type, is_packed=True)
        weights[index : index + 1] = [weight]
        end = piece.begin + piece.n_rows
        out = part.out if end == whole.rows else replace(part.out, index=len(values), name=f"{part.out.name}[:{end}]")
        values[out.index : out.index + 1] = [out]
        yield replace(linear, parts=(Part(out=out, weight=weight),), begin=piece.begin, onto=onto)
        onto = out
