"""Experts read when they were chosen: what is asked for is there, what is not asked for longest goes."""

from __future__ import annotations

import ctypes
import errno
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emel.io.errors import SourceError
from emel.kernel.sparse_experts import ExpertStreaming, SparseExperts
from unit.io.fakes import FaultyPlatform
from unit.kernel.expert_file import N_EXPERTS, ExpertFile
from unit.tensor.layered_file import FaultyReads

if TYPE_CHECKING:
    from emel.io.lanes import LaneCalls


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> ExpertFile:
    return ExpertFile(tmp_path_factory.mktemp("experts") / "model")


def open_experts(
    file: ExpertFile, n_cached: int, *, calls: LaneCalls | None = None, platform: FaultyPlatform | None = None
) -> SparseExperts:
    cache_bytes = n_cached * file.groups[0].expert_bytes
    streaming = ExpertStreaming(file.parts, tuple(file.groups), cache_bytes, 1 << 16)
    return SparseExperts(streaming, calls=calls, platform=platform or FaultyPlatform())


def rows(*experts: int) -> list[int]:
    """A row for each of these experts."""
    return [experts.count(expert) for expert in range(N_EXPERTS)]


def wrong(experts: SparseExperts, file: ExpertFile, group: int, chosen: set[int]) -> list[tuple[str, int]]:
    """The experts that are not what the file has."""
    found = []
    for extent in file.groups[group].extents:
        location = experts.locate(extent.name)
        assert location is not None
        n_bytes = location.n_bytes // N_EXPERTS
        for expert in chosen:
            begin = expert * n_bytes
            if ctypes.string_at(location.address + begin, n_bytes) != file.packed[extent.name][begin : begin + n_bytes]:
                found.append((extent.name, expert))
    return found


def test_chosen_experts_are_there_and_read_once(file: ExpertFile) -> None:
    experts = open_experts(file, 2 * N_EXPERTS)
    for _ in range(2):
        for group in range(2):
            experts.ensure(group, rows(1, 2, 3, 3))
            assert not wrong(experts, file, group, {1, 2, 3})
    assert (experts.n_reads, experts.n_waits) == (6, 2)
    chosen_bytes = 3 * sum(group.read_bytes for group in file.groups)
    assert chosen_bytes <= experts.totals().n_bytes < 2 * chosen_bytes  # small gaps are read rather than skipped
    assert wrong(experts, file, 0, {0})
    experts.close()


@settings(max_examples=25, deadline=None)
@given(
    batches=st.lists(st.tuples(st.integers(0, 1), st.sets(st.integers(0, 5), max_size=3)), max_size=12),
    n_cached=st.integers(3, 5),
)
def test_any_order_of_choices_finds_its_experts_within_the_cache(
    file: ExpertFile, batches: list[tuple[int, set[int]]], n_cached: int
) -> None:
    experts = open_experts(file, n_cached)
    for group, chosen in batches:
        before = experts.n_reads
        held = {expert for at, expert in experts.present if at == group}
        experts.ensure(group, rows(*chosen))
        assert not wrong(experts, file, group, chosen)
        assert experts.n_reads - before == len(chosen - held)
        assert len(experts.present) <= n_cached
    for group in range(2):
        assert not wrong(experts, file, group, {expert for at, expert in experts.present if at == group})
    experts.close()


def test_the_least_chosen_expert_goes_first(file: ExpertFile) -> None:
    experts = open_experts(file, 3)
    for chosen in ((0, 1), (0, 2), (0, 1), (0, 3), (0, 1), (0, 4)):
        experts.ensure(0, rows(*chosen))
    assert experts.present == {(0, 0), (0, 1), (0, 4)}
    experts.close()


def test_what_was_chosen_long_ago_counts_less(file: ExpertFile) -> None:
    experts = open_experts(file, 2)
    for expert, n in ((0, 20), (1, 200), (2, 15), (3, 1)):
        for _ in range(n):
            experts.ensure(0, rows(expert))
    assert experts.present == {(0, 1), (0, 3)}
    experts.close()


def test_memory_of_experts_that_went_is_given_back(file: ExpertFile) -> None:
    experts = open_experts(file, 1)
    for expert in (2, 3, 0):
        experts.ensure(0, rows(expert))
    for extent in file.groups[0].extents:
        location = experts.locate(extent.name)
        assert location is not None
        n_bytes = location.n_bytes // N_EXPERTS
        assert not any(ctypes.string_at(location.address + 2 * n_bytes, 2 * n_bytes - n_bytes % 4096))
    experts.close()


@pytest.mark.parametrize(("n_failures", "is_raised"), [(1, False), (2, True)])
def test_a_failed_read_is_repeated_once(file: ExpertFile, n_failures: int, is_raised: bool) -> None:
    reads = FaultyReads(file.path, 1, n_failures, errno.EIO)
    experts = open_experts(file, 3, calls=reads.calls)
    if is_raised:
        with pytest.raises(SourceError, match="cannot read"):
            experts.ensure(0, rows(4))
        assert experts.present == set()
    experts.ensure(0, rows(4))
    assert not wrong(experts, file, 0, {4})
    experts.close()


@pytest.mark.parametrize("fail_at", [1, 2])
def test_a_file_that_cannot_be_opened_leaves_nothing_open(file: ExpertFile, fail_at: int) -> None:
    platform = FaultyPlatform(fail_at)
    with pytest.raises(SourceError, match="cannot open"):
        open_experts(file, 3, platform=platform)
    platform.assert_nothing_left()


def test_closed_experts_give_everything_back(file: ExpertFile) -> None:
    platform = FaultyPlatform()
    experts = open_experts(file, 3, platform=platform)
    assert experts.group_of("1.0") == 1
    assert experts.group_of("other") is None
    assert experts.locate("other") is None
    for _ in range(2):
        experts.close()
        assert experts.is_closed
    assert experts.totals().n_bytes == 0
    platform.assert_nothing_left()
