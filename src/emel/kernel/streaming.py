"""StreamedWeights: weights of which some are packed in memory and the others pass through a window.

A plan reads them as it reads packed weights (`locate`), and asks for a unit (`acquire`) before it runs what needs it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from emel.io.lanes import LaneCalls
from emel.io.platform import SYSTEM, Platform
from emel.kernel.buffers import Memory
from emel.kernel.packing import Location
from emel.lazy_dataclasses import dataclass
from emel.sm.external import ExternalCompletionPolicy
from emel.tensor.window import Acquire, Bind, Unbind, WindowContext, WindowMachine
from emel.tensor.window_layout import WindowError, WindowLayout, places

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from emel.io.parts import FilePart
    from emel.io.unchanged import UnchangedFiles
    from emel.kernel.packing import PackedWeights
    from emel.kernel.sparse_experts import SparseExperts
    from emel.kernel.sparse_rows import SparseRows


@dataclass(frozen=True, slots=True)
class Streaming:
    """What is streamed from where, and how."""

    parts: tuple[FilePart, ...]
    layout: WindowLayout
    chunk_bytes: int = 1 << 20
    is_direct: bool = False


class Traffic(NamedTuple):
    """What a window did so far."""

    n_bytes: int  # of the files
    n_loads: int  # of units and of experts
    n_waits: int  # acquires that did not find their unit there, or one of their experts
    n_repeats: int
    waited_seconds: float  # in those that waited
    n_expert_bytes: int = 0  # of the files, for experts
    n_missing_bytes: int = 0  # of experts that were chosen and not in memory, as they lie in the files


class StreamedWeights:
    """Owns the resident weights, the window with its slots, the embedding that is read by rows and the experts that
    are read when they were chosen, if any, and `files`, which must stay what they are.

    SourceError or WindowError when the window cannot be bound; nothing stays open then. One thread at a time.
    """

    def __init__(
        self,
        resident: PackedWeights,
        streaming: Streaming,
        rows: SparseRows | None = None,
        experts: SparseExperts | None = None,
        files: UnchangedFiles | None = None,
        *,
        platform: Platform = SYSTEM,
        calls: LaneCalls | None = None,
    ) -> None:
        self.layout = streaming.layout
        self.rows = rows
        self.experts = experts
        self._files = files
        self._waited_seconds = 0.0
        self._resident = resident
        self._arena = Memory(max(self.layout.arena_bytes, 1), is_huge=True)
        self._unit_of = {extent.name: unit for unit in self.layout.streamed for extent in self.layout.units[unit]}
        policy = ExternalCompletionPolicy()
        self.window = WindowMachine(WindowContext(policy, platform, calls or LaneCalls()), policy)
        self._acquire = {unit: Acquire(unit) for unit in self.layout.streamed}
        self._dispatch(
            Bind(
                streaming.parts,
                self.layout,
                self._arena.address,
                self._arena.n_bytes,
                streaming.chunk_bytes,
                streaming.is_direct,
            )
        )

    @property
    def n_bytes(self) -> int:
        """Bytes of the resident weights and the slots."""
        return self._resident.n_bytes + self.layout.arena_bytes

    def locate(self, name: str) -> Location:
        """The location of a weight, for a streamed one that in the first slot; KeyError, ValueError once closed."""
        if self._arena.is_closed:
            raise ValueError("these weights were closed")
        unit = self._unit_of.get(name)
        if unit is not None:
            return self.locate_in_slot(unit, 0)[name]
        if self.rows is not None and name == self.rows.name:
            return self.rows.location
        if self.experts is not None and (location := self.experts.locate(name)) is not None:
            return location
        return self._resident.locate(name)

    def unit_of(self, name: str) -> int | None:
        """The unit a weight is streamed with; None for one that stays where it is."""
        return self._unit_of.get(name)

    def locate_in_slot(self, unit: int, slot: int) -> dict[str, Location]:
        """Where the weights of a unit lie when a slot holds it."""
        begin = self._arena.address + slot * self.layout.slot_bytes
        return {place.name: Location(begin + place.offset, place.n_bytes) for place in places(self.layout.units[unit])}

    def acquire(self, unit: int) -> int:
        """The slot that holds a unit from now on until the next call; waits while it is read.

        SourceError when the file failed twice; the next call tries again.
        """
        n_waits, began = self.window.context.n_waits, time.perf_counter()
        self._dispatch(self._acquire[unit])
        if self.window.context.n_waits > n_waits:
            self._waited_seconds += time.perf_counter() - began
        slot = self.window.context.ring.published
        assert slot is not None
        return slot

    def ensure_rows(self, tokens: Iterable[int]) -> None:
        """Has the embedding of these tokens in memory; SourceError."""
        if self.rows is not None:
            self.rows.ensure(tokens)

    def ensure_unchanged(self) -> None:
        """SourceError when a file was written to since it was opened: what was read of it cannot be trusted."""
        if self._files is not None:
            self._files.check()

    def experts_of(self, name: str) -> int | None:
        """The group of experts a weight belongs to that are read when they were chosen; None for any other weight."""
        return self.experts.group_of(name) if self.experts is not None else None

    def ensure_experts(self, group: int, n_rows: Sequence[int]) -> None:
        """Has the experts of a group in memory that rows go to; SourceError when the file failed twice."""
        assert self.experts is not None
        n_waits, began = self.experts.n_waits, time.perf_counter()
        self.experts.ensure(group, n_rows)
        if self.experts.n_waits > n_waits:
            self._waited_seconds += time.perf_counter() - began

    def traffic(self) -> Traffic:
        """What was read and waited for so far; for any thread."""
        context, reads = self.window.context, self.window.context.reads
        n_bytes, n_loads = (reads.n_bytes_read(), reads.n_loads) if reads is not None else (0, 0)
        n_waits = context.n_waits
        n_expert_bytes = n_missing_bytes = 0
        if self.experts is not None:
            n_expert_bytes, n_missing_bytes = self.experts.totals().n_bytes, self.experts.n_missing_bytes
            n_bytes += n_expert_bytes
            n_loads, n_waits = n_loads + self.experts.n_reads, n_waits + self.experts.n_waits
        return Traffic(
            n_bytes, n_loads, n_waits, context.n_repeats, self._waited_seconds, n_expert_bytes, n_missing_bytes
        )

    def close(self) -> None:
        """Joins what is being read and gives everything back; harmless when repeated."""
        if self._arena.is_closed:
            return
        self.window.dispatch(Unbind())
        self._arena.close()
        if self.rows is not None:
            self.rows.close()
        if self.experts is not None:
            self.experts.close()
        if self._files is not None:
            self._files.close()
        self._resident.close()

    def __del__(self) -> None:
        if getattr(self, "window", None) is not None:
            self.close()

    def _dispatch(self, event: Acquire | Bind) -> None:
        if not self.window.dispatch(event):
            raise WindowError("the window is used by another thread")
        error = self.window.context.error
        if error is not None:
            raise error
