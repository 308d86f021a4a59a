"""The slots of a window and the units in them: which is where, which comes next, which slot is free for it."""

from __future__ import annotations

from dataclasses import field
from enum import Enum

from emel.lazy_dataclasses import dataclass


class SlotState(Enum):
    """What a slot holds."""

    VACANT = "vacant"
    LOADING = "loading"
    LOADED = "loaded"
    FAILED = "failed"


@dataclass(slots=True)
class Slot:
    """One slot; `ticket` is that of its last load."""

    state: SlotState = SlotState.VACANT
    unit: int = -1
    ticket: int = -1


@dataclass(slots=True)
class Ring:
    """Slots that `streamed` units pass through in their order, again and again."""

    streamed: tuple[int, ...] = ()
    slots: list[Slot] = field(default_factory=list)
    published: int | None = None  # the slot
    last_unit: int = -1  # published last, successfully or not: what comes next is read ahead

    def slot_of(self, unit: int) -> int | None:
        """The slot that holds a unit, in whatever state."""
        for index, slot in enumerate(self.slots):
            if slot.unit == unit and slot.state is not SlotState.VACANT:
                return index
        return None

    def state_of(self, unit: int) -> SlotState:
        """What became of a unit."""
        index = self.slot_of(unit)
        return SlotState.VACANT if index is None else self.slots[index].state

    def free_slot(self) -> int | None:
        """A slot nothing is read into; one that holds what comes next only when there is no other."""
        coming = self.coming_units()
        free = [index for index, slot in enumerate(self.slots) if slot.state is not SlotState.LOADING]
        return min(free, key=lambda index: self.slots[index].unit in coming, default=None)

    def next_load(self) -> tuple[int, int] | None:
        """The first unit behind the last one that no slot holds, and the slot to read it into."""
        coming = self.coming_units()
        for unit in coming:
            if self.slot_of(unit) is None:
                for index, slot in enumerate(self.slots):
                    is_needed = slot.state is not SlotState.VACANT and slot.unit in coming
                    if slot.state is not SlotState.LOADING and index != self.published and not is_needed:
                        return unit, index
                return None
        return None

    def coming_units(self) -> list[int]:
        """The units used after the last one, as many as there are slots beside the published one."""
        n_streamed, n_slots = len(self.streamed), len(self.slots)
        at = self.streamed.index(self.last_unit) if self.last_unit >= 0 else -1
        n_ahead = min(n_slots - 1, n_streamed - 1) if at >= 0 else min(n_slots, n_streamed)
        return [self.streamed[(at + step) % n_streamed] for step in range(1, n_ahead + 1)]
