"""The experts that a batch chose, read when it did: what mixtures of experts larger than memory are.

Every matrix has its place in the address space, and memory only where experts were read. Those stay until the cache is
full; then the ones chosen least go. How much an expert is chosen is its share of the choices, batch after batch, of
which older ones count less.
"""

from __future__ import annotations

import mmap
from heapq import nsmallest
from typing import TYPE_CHECKING

from emel.io.lanes import LaneCalls, Part, Totals
from emel.io.platform import SYSTEM, Platform
from emel.io.staged import CloseStaged, OpenStaged, ReadMatrices, StagedContext, StagedMachine
from emel.kernel.buffers import Memory
from emel.kernel.packing import Location
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emel.io.parts import FilePart
    from emel.tensor.window_layout import Extent

_PAGE = mmap.PAGESIZE
_FADING = 1 / 64  # of what an expert counts, with each batch
_LARGEST_STEP = 1e100


@dataclass(frozen=True, slots=True)
class ExpertGroup:
    """The matrices of one mixture, each with `n_experts` of the same shape, expert after expert; `n_used` of a row."""

    n_experts: int
    n_used: int
    extents: tuple[Extent, ...]

    @property
    def expert_bytes(self) -> int:
        """Bytes of memory one of its experts can take: every page it touches."""
        return sum((-(-each.packed_bytes // self.n_experts // _PAGE) + 1) * _PAGE for each in self.extents)

    @property
    def read_bytes(self) -> int:
        """Bytes of the file that are one expert."""
        return sum(each.n_bytes // self.n_experts for each in self.extents)


@dataclass(frozen=True, slots=True)
class ExpertStreaming:
    """What is read from where, and how; `cache_bytes` hold the experts that any one batch chooses in a group."""

    parts: tuple[FilePart, ...]
    groups: tuple[ExpertGroup, ...]
    cache_bytes: int
    chunk_bytes: int
    is_direct: bool = False


class SparseExperts:
    """The experts of the groups of `streaming`; SourceError when a file cannot be opened. One thread at a time."""

    def __init__(
        self, streaming: ExpertStreaming, *, platform: Platform = SYSTEM, calls: LaneCalls | None = None
    ) -> None:
        self.n_reads = 0  # experts
        self.n_waits = 0  # batches of a group that found one missing
        self.n_missing_bytes = 0  # of the files, of the experts that were read
        self._groups, self._cache_bytes = streaming.groups, streaming.cache_bytes
        self._group_of = {extent.name: at for at, group in enumerate(self._groups) for extent in group.extents}
        self._present: dict[tuple[int, int], float] = {}  # (group, expert) -> how much it was chosen
        self._faded: dict[tuple[int, int], float] = {}  # the same of those that are not there
        self._used_bytes = 0
        self._step = 1.0  # what being chosen counts now: instead of fading what was, what comes counts more
        self._last_group = -1
        self._reader = StagedMachine(StagedContext(platform, calls or LaneCalls()))
        self._reader.dispatch(OpenStaged(streaming.parts, streaming.chunk_bytes, streaming.is_direct))
        self._raise_failure()
        try:
            self._memories = {
                extent.name: Memory(extent.packed_bytes) for group in self._groups for extent in group.extents
            }
        except BaseException:
            self._reader.dispatch(CloseStaged())
            raise

    @property
    def is_closed(self) -> bool:
        """Whether everything was given back."""
        return not self._memories

    @property
    def present(self) -> set[tuple[int, int]]:
        """(group, expert) of what is in memory."""
        return set(self._present)

    def totals(self) -> Totals:
        """What was read of the files so far; for any thread."""
        lanes = self._reader.context.lanes
        return Totals(0, 0) if lanes is None else lanes.totals()

    def locate(self, name: str) -> Location | None:
        """Where a whole matrix would lie; None for one that is no expert's."""
        memory = self._memories.get(name)
        return None if memory is None else Location(memory.address, memory.n_bytes)

    def group_of(self, name: str) -> int | None:
        """The group a matrix belongs to; None for one that is no expert's."""
        return self._group_of.get(name)

    def ensure(self, group: int, n_rows: Sequence[int]) -> None:
        """Has the experts of a group in memory that rows of a batch go to; `n_rows` has how many for each expert.

        SourceError when a file failed twice; what was asked for is read again the next time.
        """
        chosen = [expert for expert, n in enumerate(n_rows) if n]
        missing = [expert for expert in chosen if (group, expert) not in self._present]
        if missing:
            self.n_waits += 1
            self._make_room(group, chosen, len(missing))
            self._read(group, missing)
            self._used_bytes += len(missing) * self._groups[group].expert_bytes
            self.n_reads += len(missing)
            self.n_missing_bytes += len(missing) * self._groups[group].read_bytes
            for expert in missing:
                self._present[group, expert] = self._faded.pop((group, expert), 0.0)
        self._count(group, chosen, n_rows)

    def _count(self, group: int, chosen: Sequence[int], n_rows: Sequence[int]) -> None:
        if group <= self._last_group:  # the next batch
            self._step *= 1 + _FADING
            if self._step > _LARGEST_STEP:
                self._rescale()
        self._last_group = group
        n_choices = sum(n_rows)
        for expert in chosen:
            self._present[group, expert] += self._step * n_rows[expert] / n_choices

    def _rescale(self) -> None:
        for counts in (self._present, self._faded):
            for key in counts:
                counts[key] /= self._step
        self._step = 1.0

    def _make_room(self, group: int, kept: Sequence[int], n_missing: int) -> None:
        excess = self._used_bytes + n_missing * self._groups[group].expert_bytes - self._cache_bytes
        if excess <= 0:
            return
        needed = {(group, expert) for expert in kept}
        others = [key for key in self._present if key not in needed]
        smallest = min(each.expert_bytes for each in self._groups)
        for key in nsmallest(-(-excess // smallest), others, key=self._present.__getitem__):
            if excess <= 0:
                return
            self._drop(*key)
            excess -= self._groups[key[0]].expert_bytes

    def _drop(self, group: int, expert: int) -> None:
        self._faded[group, expert] = self._present.pop((group, expert))
        self._used_bytes -= self._groups[group].expert_bytes
        for extent in self._groups[group].extents:
            n_bytes = extent.packed_bytes // self._groups[group].n_experts
            begin, end = expert * n_bytes, (expert + 1) * n_bytes
            if n_bytes >= _PAGE:  # a page that is shared with a neighbour goes with the last of the two
                begin -= begin % _PAGE if (group, expert - 1) not in self._present else 0
                end += -end % _PAGE if (group, expert + 1) not in self._present else 0
            self._memories[extent.name].discard(begin, min(end, extent.packed_bytes) - begin)

    def _read(self, group: int, experts: Sequence[int]) -> None:
        self._reader.dispatch(ReadMatrices(tuple(self._parts(self._groups[group], experts))))
        self._raise_failure()

    def _raise_failure(self) -> None:
        error = self._reader.context.error
        if error is not None:
            raise error

    def _parts(self, group: ExpertGroup, experts: Sequence[int]) -> Iterator[Part]:
        """Neighbours are one part: they lie side by side in the file and in memory."""
        for extent in sorted(group.extents, key=lambda each: each.place):
            rows, n_bytes = extent.rows // group.n_experts, extent.n_bytes // group.n_experts
            packed = extent.packed_bytes // group.n_experts
            address = self._memories[extent.name].address
            for first, n in _runs(experts):
                yield Part(
                    extent.offset + first * n_bytes,
                    address + first * packed,
                    n * packed,
                    n * rows,
                    extent.cols,
                    int(extent.type),
                    extent.part,
                )

    def close(self) -> None:
        """Joins the lanes and gives memory and files back; harmless when repeated."""
        if self.is_closed:
            return
        self._reader.dispatch(CloseStaged())
        for memory in self._memories.values():
            memory.close()
        self._memories = {}


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, how many) of ascending numbers that follow each other."""
    first = before = numbers[0]
    for number in numbers[1:]:
        if number != before + 1:
            yield first, before - first + 1
            first = number
        before = number
    yield first, before - first + 1
