"""One row of a transition table."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

S = TypeVar("S", bound=Enum)
C = TypeVar("C")
E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class AnyRow(Generic[S, C]):
    """A row whatever its event: the type of the rows of a table, so that each of them is checked for its own event."""

    source: S
    event: type[Any] | None
    guard: Callable[[C, Any], bool] | None
    effect: Callable[[C, Any], Awaitable[None] | Generator[Any, Any, None] | None] | None
    destination: S

    def __str__(self) -> str:
        """`IDLE + Begin [fits_target] / start_first_chunk -> READING`."""
        text = f"{name_of(self.source)} + {event_name(self.event)}"
        if self.guard is not None:
            text += f" [{name_of(self.guard)}]"
        if self.effect is not None:
            text += f" / {name_of(self.effect)}"
        return f"{text} -> {name_of(self.destination)}"


class Row(AnyRow[S, C], Generic[S, C, E]):
    """source + event [guard] / effect -> destination.

    `event` is a frozen slotted dataclass, matched by its exact class, or None for a completion row: tried after
    every transition that ends in `source`, with the event that started the run. `guard` None always holds, `effect`
    None does nothing. Only effects of a `CoMachine` may wait (be generators or coroutines).
    """

    __slots__ = ()

    @overload  # a completion row that only moves on: nothing in it says which event
    def __init__(
        self: Row[S, C, object], source: S, event: None, guard: None, effect: None, destination: S
    ) -> None: ...

    @overload
    def __init__(
        self,
        source: S,
        event: type[E] | None,
        guard: Callable[[C, E], bool] | None,
        effect: Callable[[C, E], Awaitable[None] | Generator[Any, Any, None] | None] | None,
        destination: S,
    ) -> None: ...

    def __init__(self, source: S, event: Any, guard: Any, effect: Any, destination: S) -> None:
        super().__init__(source, event, guard, effect, destination)


def name_of(thing: object) -> str:
    """The name a state, guard, effect or event class goes by in tables and messages; repr for what has none."""
    if isinstance(thing, Enum):
        return thing.name
    name = getattr(thing, "__name__", None)
    return name if isinstance(name, str) else repr(thing)


def event_name(event: type | None) -> str:
    """The name of an event class; `(completion)` for None."""
    return "(completion)" if event is None else name_of(event)
