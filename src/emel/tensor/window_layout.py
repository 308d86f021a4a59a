"""Which units of a model stay in memory and which go through the slots of a window, for a budget of bytes.

A unit is what a plan needs at once: neighbouring matrices of a layer, or a piece of the output matrix. Units are used
in order, again and again, so what is kept of a cycle is best kept for good: a fixed resident set, and as few slots as
overlap reading and computing. What is read for each pass is then linear in what is missing. Streamed units are spread
evenly among the resident ones: while these compute, the next streamed ones are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emel.tensor.types import TensorType

ALIGNMENT = 64  # of a packed matrix, in bytes
SLOT_ALIGNMENT = 4096
MIN_SLOTS, MAX_SLOTS = 2, 8
MAX_UNITS = 1024
MAX_EXTENTS = 64  # matrices of a unit
# With two slots a read begins only when the one before has ended and the unit before that is computed; with a third the
# lanes have a next one meanwhile. On a busy machine that is worth a third of the speed: reading an eighth more is fine.
# What further ones are worth is to bridge units whose computing takes longer: they may cost no more than a 32nd.
_THIRD_SLOT_SHARE = 8
_SLOTS_SHARE = 32


class WindowError(ValueError):
    """A window that cannot be: the text says what was asked for and what is allowed."""


@dataclass(frozen=True, slots=True)
class Extent:
    """A (rows, cols) matrix: where it lies in which file of its model, and the bytes of its packed form."""

    name: str
    offset: int
    n_bytes: int
    rows: int
    cols: int
    type: TensorType
    packed_bytes: int
    part: int = 0

    @property
    def place(self) -> tuple[int, int]:
        """File and offset, by which matrices are in file order."""
        return self.part, self.offset

    @property
    def end(self) -> int:
        """The byte of the file behind its last one."""
        return self.offset + self.n_bytes


Unit = tuple[Extent, ...]


class Place(NamedTuple):
    """Where in its slot a matrix of a unit lies."""

    name: str
    offset: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class WindowLayout:
    """The units, which of them are streamed (ascending indices), and the slots; no slots when all are resident."""

    units: tuple[Unit, ...]
    streamed: tuple[int, ...]
    n_slots: int
    slot_bytes: int

    @property
    def is_resident(self) -> bool:
        """Whether everything stays in memory: no window is needed."""
        return not self.streamed

    @property
    def arena_bytes(self) -> int:
        """Bytes of all slots."""
        return self.n_slots * self.slot_bytes

    @property
    def resident(self) -> tuple[int, ...]:
        """The units that are not streamed."""
        streamed = set(self.streamed)
        return tuple(index for index in range(len(self.units)) if index not in streamed)

    @property
    def resident_bytes(self) -> int:
        """Packed bytes of the resident units."""
        return sum(unit_bytes(self.units[index]) for index in self.resident)

    @property
    def streamed_file_bytes(self) -> int:
        """Bytes of the file that every pass over all units reads."""
        return sum(extent.n_bytes for index in self.streamed for extent in self.units[index])


def unit_bytes(unit: Unit) -> int:
    """Bytes of a unit in memory."""
    return sum(_aligned(extent.packed_bytes, ALIGNMENT) for extent in unit)


def places(unit: Unit) -> tuple[Place, ...]:
    """Where the matrices of a unit lie in a slot, in order."""
    found = []
    offset = 0
    for extent in unit:
        found.append(Place(extent.name, offset, extent.packed_bytes))
        offset += _aligned(extent.packed_bytes, ALIGNMENT)
    return tuple(found)


def smallest_budget(units: Sequence[Unit], n_slots: int | None = None) -> int:
    """Bytes with which the units can be run at all: the slots (two, unless more are asked for), or all of them."""
    sizes = [unit_bytes(unit) for unit in units]
    return min(sum(sizes), (n_slots or MIN_SLOTS) * _aligned(max(sizes), SLOT_ALIGNMENT))


def lay_out(units: Sequence[Unit], budget: int, n_slots: int | None = None) -> WindowLayout:
    """The layout with the most resident bytes within `budget`; WindowError names what is out of range.

    `n_slots` None takes as many as are worth their memory.
    """
    _check(units, n_slots)
    units = tuple(units)
    sizes = [unit_bytes(unit) for unit in units]
    if sum(sizes) <= budget:
        return WindowLayout(units, (), 0, 0)
    best = _laid_out(units, sizes, budget, n_slots or MIN_SLOTS)
    if n_slots is None:
        share = _THIRD_SLOT_SHARE
        most = best.streamed_file_bytes + best.streamed_file_bytes // share
        for wanted in range(MIN_SLOTS + 1, MAX_SLOTS + 1):
            try:
                layout = _laid_out(units, sizes, budget, wanted)
            except WindowError:
                break
            if layout.streamed_file_bytes > most:
                break
            best = layout
            if share != _SLOTS_SHARE:
                share = _SLOTS_SHARE
                most = best.streamed_file_bytes + best.streamed_file_bytes // share
    return best


def _laid_out(units: tuple[Unit, ...], sizes: Sequence[int], budget: int, n_slots: int) -> WindowLayout:
    for n_streamed in range(n_slots + 1, len(units) + 1):
        streamed = _spread(len(units), n_streamed)
        slot = _aligned(max(sizes[index] for index in streamed), SLOT_ALIGNMENT)
        left = budget - n_slots * slot - (sum(sizes) - sum(sizes[index] for index in streamed))
        if left >= 0:
            return WindowLayout(units, _without(streamed, sizes, left, n_slots), n_slots, slot)
    raise WindowError(
        f"{budget} bytes are too few for {len(units)} units of up to {max(sizes)} bytes in {n_slots} slots: "
        f"{smallest_budget(units, n_slots)} are the least"
    )


def _spread(n_units: int, n_streamed: int) -> tuple[int, ...]:
    """`n_streamed` of `n_units`, evenly."""
    return tuple(
        index for index in range(n_units) if index * n_streamed // n_units != (index + 1) * n_streamed // n_units
    )


def _without(streamed: tuple[int, ...], sizes: Sequence[int], n_bytes: int, n_slots: int) -> tuple[int, ...]:
    """The streamed units without those that `n_bytes` more have room for, the largest first."""
    left = set(streamed)
    for index in sorted(streamed, key=lambda index: -sizes[index]):
        if sizes[index] <= n_bytes and len(left) > n_slots + 1:
            n_bytes -= sizes[index]
            left.remove(index)
    return tuple(sorted(left))


def _check(units: Sequence[Unit], n_slots: int | None) -> None:
    if n_slots is not None and not MIN_SLOTS <= n_slots <= MAX_SLOTS:
        raise WindowError(f"a window of {n_slots} slots: {MIN_SLOTS} to {MAX_SLOTS} are allowed")
    if not 1 <= len(units) <= MAX_UNITS:
        raise WindowError(f"a window over {len(units)} units: 1 to {MAX_UNITS} are allowed")
    for index, unit in enumerate(units):
        if not 1 <= len(unit) <= MAX_EXTENTS:
            raise WindowError(f"unit {index} of a window has {len(unit)} matrices: 1 to {MAX_EXTENTS} are allowed")
        for extent in unit:
            if extent.offset < 0 or extent.n_bytes < 1 or extent.packed_bytes < 1:
                raise WindowError(f"{extent.name!r} has no place in a file or no bytes: {extent}")


def _aligned(n_bytes: int, alignment: int) -> int:
    return -(-n_bytes // alignment) * alignment
