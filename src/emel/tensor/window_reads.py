"""What a window reads: its open files, the lanes, and every load of a unit into a slot, known by its ticket.

A load completes once: how it ended is noted for its slot, then the slot's source is fired. Only `deliver`, which the
lanes call, runs on another thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.io.errors import SourceError
from emel.io.lanes import LaneCalls, Part, ReadLanes, Request
from emel.io.parts import OpenedPart, close_parts, open_parts
from emel.tensor.window_layout import MAX_SLOTS, places

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from emel.io.parts import FilePart
    from emel.io.platform import Platform
    from emel.sm.external import ExternalCompletionPolicy
    from emel.tensor.window_layout import WindowLayout


class WindowReads:
    """The files of `parts`, opened. SourceError; nothing stays open then."""

    def __init__(self, platform: Platform, parts: Sequence[FilePart], *, is_direct: bool) -> None:
        self.opened: tuple[OpenedPart, ...] = open_parts(platform, parts, is_direct=is_direct)
        self.n_loads = 0
        self.lanes: ReadLanes | None = None
        self._platform = platform
        self._outcomes: list[tuple[int, SourceError | None]] = []  # slot -> ticket, how it ended
        self._requests: dict[int, tuple[Request, ...]] = {}  # unit -> one for each slot

    def start(
        self,
        policy: ExternalCompletionPolicy,
        layout: WindowLayout,
        address: int,
        *,
        chunk_bytes: int,
        calls: LaneCalls,
    ) -> None:
        """Starts the lanes and lays out the reads of every unit into every slot at `address`; NativeError."""
        slots = range(layout.n_slots)
        self._outcomes = [(-1, None) for _ in slots]
        self._requests = {
            unit: tuple(_request(layout, unit, address + index * layout.slot_bytes) for index in slots)
            for unit in layout.streamed
        }
        deliver = _delivering(self._outcomes, policy)
        self.lanes = ReadLanes(self.opened, deliver, chunk_bytes=chunk_bytes, calls=calls)

    def next_ticket(self, slot: int) -> int:
        """The number of a load into a slot; no two are the same."""
        self.n_loads += 1
        return (self.n_loads - 1) * MAX_SLOTS + slot

    def submit(self, ticket: int, unit: int, *, is_urgent: bool) -> SourceError | None:
        """Has a unit read; what is refused is an error, and no completion comes."""
        assert self.lanes is not None
        slot = ticket % MAX_SLOTS
        try:
            self.lanes.submit(ticket, self._requests[unit][slot], is_urgent=is_urgent)
        except (RuntimeError, ValueError) as error:
            refusal = SourceError(f"a read was refused: {error}")
            self._outcomes[slot] = (ticket, refusal)
            return refusal
        return None

    def has(self, unit: int) -> bool:
        """Whether it is a streamed one."""
        return unit in self._requests

    def ticket_of(self, slot: int) -> int:
        """The load into a slot that ended last."""
        return self._outcomes[slot][0]

    def error_of(self, slot: int) -> SourceError | None:
        """How it ended."""
        return self._outcomes[slot][1]

    def n_bytes_read(self) -> int:
        """Bytes of the files, so far; for any thread."""
        lanes = self.lanes  # another thread may close them meanwhile
        return lanes.totals().n_bytes if lanes is not None else 0

    def close(self) -> None:
        """Cancels and joins what is being read, and gives the files up."""
        if self.lanes is not None:
            self.lanes.close()
            self.lanes = None
        opened, self.opened = self.opened, ()
        close_parts(self._platform, opened)


def _delivering(
    outcomes: list[tuple[int, SourceError | None]], policy: ExternalCompletionPolicy
) -> Callable[[int, SourceError | None], None]:
    """What the lanes call; it keeps nothing alive but these two."""

    def deliver(ticket: int, error: SourceError | None) -> None:
        outcomes[ticket % MAX_SLOTS] = (ticket, error)
        policy.fire(ticket % MAX_SLOTS)

    return deliver


def _request(layout: WindowLayout, unit: int, address: int) -> Request:
    pairs = zip(layout.units[unit], places(layout.units[unit]), strict=True)
    return Request(
        [
            Part(
                extent.offset,
                address + place.offset,
                place.n_bytes,
                extent.rows,
                extent.cols,
                int(extent.type),
                extent.part,
            )
            for extent, place in sorted(pairs, key=lambda pair: pair[0].place)
        ]
    )
