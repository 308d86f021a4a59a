from __future__ import annotations

from emel.graph.attention_ops import Attention, RopeStore
from emel.graph.fuse import fuse
from emel.graph.liveness import Interval, live_intervals, peak_bytes, storages
from emel.graph.ops import Form, Graph, RmsNorm
from unit.graph.tiny import Tiny


def intervals_of(graph: Graph) -> dict[int, Interval]:
    sizes = {value.index: 1 for value in graph.values}
    return {interval.storage: interval for interval in live_intervals(graph, sizes)}


def test_liveness_the_residual_stream_is_one_storage_from_embedding_to_the_last_norm() -> None:
    graph = fuse(Tiny(n_layers=3, gathers=False).build())
    storage = storages(graph)
    norms = [i for i, operation in enumerate(graph.operations) if isinstance(operation, RmsNorm)]
    streams = {storage[graph.operations[i].x.index] for i in norms}  # type: ignore[attr-defined]
    assert len(streams) == 1
    interval = intervals_of(graph)[streams.pop()]
    assert (interval.first, interval.last) == (1, norms[-1])


def test_liveness_rotated_queries_share_the_storage_of_q() -> None:
    graph = fuse(Tiny().build())
    storage = storages(graph)
    store = next(operation for operation in graph.operations if isinstance(operation, RopeStore))
    assert storage[store.rotated.index] == storage[store.q.index]
    assert intervals_of(graph)[storage[store.k.index]].last == graph.operations.index(store)


def test_liveness_scratch_lives_for_its_attention_alone() -> None:
    graph = fuse(Tiny().build())
    at, attention = next((i, o) for i, o in enumerate(graph.operations) if isinstance(o, Attention))
    interval = intervals_of(graph)[attention.scratch.index]
    assert (interval.first, interval.last) == (at, at)


def test_liveness_logits_have_no_storage() -> None:
    graph = fuse(Tiny().build())
    (logits,) = (value for value in graph.values if value.form is Form.LOGITS)
    assert logits.index not in storages(graph)


def test_liveness_a_storage_is_as_large_as_the_largest_value_in_it() -> None:
    graph = fuse(Tiny(n_layers=1, gathers=False).build())
    norm = next(o for o in graph.operations if isinstance(o, RmsNorm) and o.total is not None)
    assert norm.total is not None
    sizes = {value.index: 10 for value in graph.values} | {norm.total.index: 99}
    stored = {each.storage: each.n_bytes for each in live_intervals(graph, sizes)}
    assert stored[norm.x.index] == 99


def test_peak_counts_both_ends_of_an_interval() -> None:
    assert peak_bytes([Interval(0, 0, 1, 5), Interval(1, 1, 2, 7), Interval(2, 2, 2, 1)]) == 12
    assert peak_bytes([]) == 0
