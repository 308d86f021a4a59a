from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from emel.graph import assembler
from emel.graph.allocator import Placement
from emel.graph.assembler import Assemble, AssemblerContext, AssemblerMachine, State, assemble
from emel.graph.capacity import Capacity
from emel.graph.errors import GraphError
from emel.kernel.numerics import Activations
from unit.graph.interpreters import FakeSizes
from unit.graph.tiny import Tiny

if TYPE_CHECKING:
    from emel.graph.ops import Graph

CAPACITY = Capacity(4, 2, 1, 4)


def machine() -> AssemblerMachine:
    return AssemblerMachine(AssemblerContext(sizes=FakeSizes()))


def broken() -> Graph:
    return replace(Tiny().build(), n_kv_layers=7)


def unfusable() -> Graph:
    graph = Tiny(gathers=False).build()
    return replace(graph, operations=tuple(o for o in graph.operations if type(o).__name__ != "RmsNorm"))


def failing() -> Graph:
    raise ValueError("d_model is odd")


def test_assembler_assembles_and_reuses() -> None:
    tiny, one = Tiny(), machine()
    one.dispatch(Assemble(tiny.build, CAPACITY))
    first = one.context.assembly
    assert one.state is State.ASSEMBLED
    assert first is not None
    one.dispatch(Assemble(tiny.build, Capacity(3, 1, 1, 4)))
    assert one.context.assembly is first
    assert one.context.n_assembled == 1
    one.dispatch(Assemble(tiny.build, Capacity(5, 1, 1, 4)))
    assert one.context.assembly is not first
    assert one.context.n_assembled == 2


def test_assembler_reuses_only_the_same_graph() -> None:
    one = machine()
    one.dispatch(Assemble(Tiny().build, CAPACITY))
    one.dispatch(Assemble(Tiny(n_layers=1).build, CAPACITY))
    assert one.context.n_assembled == 2


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (broken, "breaks the rule 'stores_before_it_attends'"),
        (failing, "d_model is odd"),
        (unfusable, "breaks the rule"),
    ],
)
def test_assembler_fails_with_one_error_and_takes_the_next(build, message: str) -> None:  # type: ignore[no-untyped-def]
    one = machine()
    one.dispatch(Assemble(build, CAPACITY))
    assert one.state is State.FAILED
    assert isinstance(one.context.error, GraphError)
    assert message in str(one.context.error)
    assert one.context.assembly is None
    one.dispatch(Assemble(Tiny().build, CAPACITY))
    assert one.state is State.ASSEMBLED
    assert one.context.error is None


def test_assembler_validates_what_fusing_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembler, "fuse", lambda graph: graph)
    with pytest.raises(GraphError, match="breaks the rule 'has_parts_of_one_kind'"):
        assemble(Tiny().build, CAPACITY, sizes=FakeSizes())


def test_assembler_reports_sizes_the_library_refuses() -> None:
    class NoSizes(FakeSizes):
        @staticmethod
        def quantized_bytes(width: int, activations: Activations = Activations.INT16, /) -> int:
            raise ValueError("the native library has no size for that")

    with pytest.raises(GraphError, match="has no size for that"):
        assemble(Tiny().build, CAPACITY, sizes=NoSizes())


def test_assembler_never_trusts_the_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        assembler, "place", lambda intervals: Placement({each.storage: 0 for each in intervals}, 1 << 20)
    )
    with pytest.raises(GraphError, match="on the same bytes"):
        assemble(Tiny().build, CAPACITY, sizes=FakeSizes())
