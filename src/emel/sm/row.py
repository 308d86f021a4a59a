"""One row of a transition table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

S = TypeVar("S", bound=Enum)
C = TypeVar("C")
E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class Row(Generic[S, C, E]):
    """source + event [guard] / effect -> destination.

    `event` is a frozen slotted dataclass, matched by its exact class, or None for a completion row: tried after
    every transition that ends in `source`, with the event that started the run. `guard` None always holds, `effect`
    None does nothing. Only effects of a `CoMachine` may wait (be generators or coroutines).
    """

    source: S
    event: type[E] | None
    guard: Callable[[C, E], bool] | None
    effect: Callable[[C, E], Awaitable[None] | Generator[Any, Any, None] | None] | None
    destination: S

    def __str__(self) -> str:
        """`IDLE + Begin [fits_target] / start_first_chunk -> READING`."""
        text = f"{name_of(self.source)} + {event_name(self.event)}"
        if self.guard is not None:
            text += f" [{name_of(self.guard)}]"
        if self.effect is not None:
            text += f" / {name_of(self.effect)}"
        return f"{text} -> {name_of(self.destination)}"


def name_of(thing: object) -> str:
    """The name a state, guard, effect or event class goes by in tables and messages; repr for what has none."""
    if isinstance(thing, Enum):
        return thing.name
    name = getattr(thing, "__name__", None)
    return name if isinstance(name, str) else repr(thing)


def event_name(event: type | None) -> str:
    """The name of an event class; `(completion)` for None."""
    return "(completion)" if event is None else name_of(event)
