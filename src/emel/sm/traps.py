"""The only functions that ever yield: what a waiting effect of a `CoMachine` may ask of its scheduler.

An effect awaits them (`async def`) or delegates to them (`yield from` in a generator). A policy answers each trap by
sending a value back, or refuses it by throwing an error into the effect.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

R = TypeVar("R")


class Trap:
    """A request of a suspended effect; subclasses say what it asks for."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Checkpoint(Trap):
    """Let other ready machines take a step; the answer is None."""


@dataclass(frozen=True, slots=True)
class RunLanes(Trap):
    """Run independent calls, perhaps at once; the answer is their results in the order of `calls`.

    All calls run to their end, also when some raise; then the exception of the first of these is thrown.
    """

    calls: Sequence[Callable[[], Any]]


class Lanes(Protocol):
    """Lanes that run one native call at a time, forked and joined by it; `emel.kernel.pool.LanePool` are some."""

    n_lanes: int


@dataclass(frozen=True, slots=True)
class OnLanes(Trap):
    """Call with the lanes of the policy; the answer is what the call returns. Refused by a policy that has none."""

    call: Callable[[Any], Any]


_CHECKPOINT = Checkpoint()


@types.coroutine
def checkpoint() -> Generator[Trap, Any, None]:
    """Lets other ready machines take a step."""
    yield _CHECKPOINT


@types.coroutine
def run_lanes(calls: Sequence[Callable[[], R]]) -> Generator[Trap, Any, list[R]]:
    """Forks `calls`, joins them, and returns their results in order; raises the exception of the first that raised.

    The calls must not touch the same data: a policy may run them at once, on other threads.
    """
    return cast("list[R]", (yield RunLanes(calls)))


@types.coroutine
def on_lanes(call: Callable[[Any], R]) -> Generator[Trap, Any, R]:
    """Calls `call` with the lanes of the policy (see `Lanes`): which they are is the policy's choice, not the effect's.

    Raises what `call` raises, and RefusedTrap under a policy that has no lanes.
    """
    return cast("R", (yield OnLanes(call)))
