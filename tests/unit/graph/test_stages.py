"""Stages: which segments run together, what is asked for before each, and graphs that cannot be streamed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from emel.graph.errors import GraphError
from emel.graph.expert_ops import ExpertLinear
from emel.graph.mixtures import cut_behind_routers, mixtures_of
from emel.graph.stages import StagedSource, Stages
from emel.kernel.packing import Location
from emel.tensor.window_layout import WindowLayout
from unit.graph.tiny import Tiny

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from emel.graph.ops import Graph

N_SLOTS = 2


@dataclass
class FakeSource:
    """Units and groups of experts by the weights' names; `log` has every call, and every run of a plan."""

    units: dict[str, int] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    log: list[tuple[Any, ...]] = field(default_factory=list)
    layout: WindowLayout = field(default_factory=lambda: WindowLayout((), (), N_SLOTS, 1 << 20))

    def locate(self, _name: str) -> Location:
        return Location(0, 0)

    def unit_of(self, name: str) -> int | None:
        return self.units.get(name)

    def locate_in_slot(self, unit: int, slot: int) -> Mapping[str, Location]:
        return {name: Location(1000 * slot + unit, 7) for name, of in self.units.items() if of == unit}

    def acquire(self, unit: int) -> int:
        self.log.append(("acquire", unit))
        return unit % N_SLOTS

    def experts_of(self, name: str) -> int | None:
        return self.groups.get(name)

    def ensure_experts(self, group: int, n_rows: Sequence[int]) -> None:
        self.log.append(("experts", group, list(n_rows)))

    def ensure_rows(self, tokens: Iterable[int]) -> None:
        self.log.append(("rows", list(tokens)))

    def ensure_unchanged(self) -> None:
        self.log.append(("unchanged",))


@dataclass
class FakePlan:
    """Notes what runs; `refused_at` is the segment that is refused."""

    log: list[tuple[Any, ...]]
    refused_at: int = -1

    def rebase(self, index: int, address: int, n_bytes: int) -> None:
        self.log.append(("rebase", index, address, n_bytes))

    def rows_of_experts(self, mixture: Any, _batch: Any) -> list[int]:
        return [mixture.n_experts, mixture.n_used]

    def run(self, _pool: object, batch: Any) -> int:
        self.log.append(("run", batch.record.segment_begin, batch.record.segment_end))
        return 3 if batch.record.segment_begin == self.refused_at else 0


def run(graph: Graph, source: FakeSource, *, n_outputs: int = 1, refused_at: int = -1) -> int:
    batch = SimpleNamespace(
        tokens=[5, 6, 99], n_tokens=2, n_outputs=n_outputs, record=SimpleNamespace(segment_begin=0, segment_end=0)
    )
    stages = Stages(graph, source)
    return stages.run(FakePlan(source.log, refused_at), None, batch)  # type: ignore[arg-type]


def matrices_in(graph: Graph, segment: int) -> list[str]:
    operations = [each for each in graph.operations if each.segment == segment]
    return sorted({w.name for each in operations for w in each.weights() if w.is_packed})


def layer_units(graph: Graph, *segments: int) -> dict[str, int]:
    return {name: segment - 1 for segment in segments for name in matrices_in(graph, segment)}


def test_a_source_has_what_stages_ask_of_it() -> None:
    assert isinstance(FakeSource(), StagedSource)


def test_resident_weights_run_in_one_call_with_their_embedding_rows_there() -> None:
    source = FakeSource()
    graph = Tiny(is_tied=False).build()
    assert run(graph, source) == 0
    assert source.log == [("rows", [5, 6]), ("run", 0, graph.n_segments), ("unchanged",)]


def test_each_unit_is_acquired_and_rebased_before_its_segment() -> None:
    graph = Tiny(n_layers=3).build()
    source = FakeSource(layer_units(graph, 1, 3))
    assert run(graph, source) == 0
    index_of = {weight.name: weight.index for weight in graph.weights}
    first, third = (
        {("rebase", index_of[name], 1000 * (unit % N_SLOTS) + unit, 7) for name in matrices_in(graph, unit + 1)}
        for unit in (0, 2)
    )
    steps = [each for each in source.log if each[0] != "rebase"]
    assert steps == [
        ("rows", [5, 6]),
        ("run", 0, 1),
        ("acquire", 0),
        ("run", 1, 3),
        ("acquire", 2),
        ("run", 3, graph.n_segments),
        ("unchanged",),
    ]
    assert {each for each in source.log if each[0] == "rebase"} == first | third


def test_a_refused_segment_ends_the_run_with_its_status() -> None:
    graph = Tiny(n_layers=3).build()
    source = FakeSource(layer_units(graph, 1, 2, 3))
    assert run(graph, source, refused_at=2) == 3
    assert source.log[-1] == ("run", 2, 3)


def test_units_of_outputs_alone_are_not_acquired_without_outputs() -> None:
    graph = Tiny(is_tied=False).build()
    last = graph.n_segments - 1
    source = FakeSource(dict.fromkeys(matrices_in(graph, last), 0))
    run(graph, source, n_outputs=1)
    assert ("acquire", 0) in source.log
    source.log.clear()
    run(graph, source, n_outputs=0)
    assert source.log == [("rows", [5, 6]), ("run", 0, last), ("unchanged",)]


def test_chosen_experts_are_asked_for_behind_their_router() -> None:
    graph = cut_behind_routers(Tiny(n_experts=4).build())
    mixtures = mixtures_of(graph.operations)
    source = FakeSource(groups={w.name: at for at, mixture in enumerate(mixtures) for w in mixture.weights})
    assert run(graph, source) == 0
    begins = [min(each.segment for each in graph.operations if isinstance(each, ExpertLinear))]
    begins.append(max(each.segment for each in graph.operations if isinstance(each, ExpertLinear)))
    assert source.log == [
        ("rows", [5, 6]),
        ("run", 0, begins[0]),
        ("experts", 0, [4, 2]),
        ("run", begins[0], begins[1]),
        ("experts", 1, [4, 2]),
        ("run", begins[1], graph.n_segments),
        ("unchanged",),
    ]


def test_graphs_that_cannot_be_streamed_are_refused() -> None:
    graph = Tiny(n_layers=3, is_tied=False).build()
    names = matrices_in(graph, 1)
    with pytest.raises(GraphError, match=r"^segment 1 reads 2 units of streamed weights: one is allowed$"):
        Stages(graph, FakeSource({names[0]: 0, names[1]: 1}))
    with pytest.raises(GraphError, match=r"^segments 1 and 2 read the same unit of streamed weights$"):
        Stages(graph, FakeSource({names[0]: 0, matrices_in(graph, 2)[0]: 0}))
    with pytest.raises(GraphError, match=r"^an embedding is streamed: it is read by rows, or stays in memory$"):
        Stages(graph, FakeSource({"embedding": 0}))


def test_experts_that_cannot_be_read_by_need_are_refused() -> None:
    graph = Tiny(n_experts=4).build()
    first, second = mixtures_of(graph.operations)
    groups = {w.name: at for at, mixture in enumerate((first, second)) for w in mixture.weights}
    with pytest.raises(GraphError, match=r"^segment 1 chooses the experts it reads: a segment before must$"):
        Stages(graph, FakeSource(groups=groups))
    cut = cut_behind_routers(graph)
    with pytest.raises(GraphError, match=r"^segment 2 reads several mixtures of experts: one is allowed$"):
        Stages(cut, FakeSource(groups=groups | {first.weights[0].name: 7}))
    together = replace(cut, operations=tuple(replace(each, segment=0) for each in cut.operations))
    with pytest.raises(GraphError, match=r"^segment 0 reads several mixtures of experts: one is allowed$"):
        Stages(together, FakeSource(groups=groups))
