"""Machines the tests of `sm` share: a plain one with every kind of row, and a coroutine one."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from emel.sm import CoMachine, Machine, Row
from emel.sm.traps import checkpoint, run_lanes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator


@dataclass(frozen=True, slots=True)
class Begin:
    """Start a download of n_chunks."""

    n_chunks: int


@dataclass(frozen=True, slots=True)
class ChunkRead:
    """One chunk has come."""

    data: bytes = b"x"


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """The source gave up."""

    reason: str = "gone"


@dataclass(frozen=True, slots=True)
class Reset:
    """Forget the failure."""


class State(Enum):
    IDLE = "idle"
    READING = "reading"
    CHECKING = "checking"
    DONE = "done"
    FAILED = "failed"


@dataclass(slots=True)
class Context:
    n_wanted: int = 0
    chunks: list[bytes] = field(default_factory=list)
    error: str | None = None
    log: list[str] = field(default_factory=list)


def is_possible(context: Context, event: Begin) -> bool:
    """There is at least one chunk."""
    return event.n_chunks > 0


def has_all(context: Context, event: object) -> bool:
    """Every chunk has come."""
    return len(context.chunks) >= context.n_wanted


def is_intact(context: Context, event: object) -> bool:
    """No chunk is empty."""
    return all(context.chunks)


def start(context: Context, event: Begin) -> None:
    """Takes the count."""
    context.n_wanted = event.n_chunks
    context.log.append("start")


def store(context: Context, event: ChunkRead) -> None:
    """Keeps the chunk."""
    if event.data == b"poison":
        raise ValueError("poisoned chunk")
    context.chunks.append(event.data)
    context.log.append("store")


def keep_error(context: Context, event: ReadFailed) -> None:
    """Keeps the reason."""
    context.error = event.reason


def complain(context: Context, event: object) -> None:
    """Says what is wrong."""
    context.error = f"empty chunk (at {type(event).__name__})"


def forget(context: Context, event: Reset) -> None:
    """Clears the context."""
    context.chunks.clear()
    context.error = None


class DownloadMachine(Machine[State, Context]):
    """Collects chunks."""

    INITIAL = State.IDLE
    TERMINAL = frozenset({State.DONE})
    FAILED = frozenset({State.FAILED})
    # fmt: off
    TABLE = (
        #   source          event       guard        effect      destination
        Row(State.IDLE,     Begin,      is_possible, start,      State.READING),
        Row(State.READING,  ChunkRead,  None,        store,      State.READING),
        Row(State.READING,  ReadFailed, None,        keep_error, State.FAILED),
        Row(State.READING,  None,       has_all,     None,       State.CHECKING),
        Row(State.CHECKING, None,       is_intact,   None,       State.DONE),
        Row(State.CHECKING, None,       None,        complain,   State.FAILED),
        Row(State.FAILED,   Reset,      None,        forget,     State.IDLE),
    )
    # fmt: on


async def start_slowly(context: Context, event: Begin) -> None:
    """Takes the count after a turn for others."""
    await checkpoint()
    start(context, event)


def store_in_lanes(context: Context, event: ChunkRead) -> Generator[Any, Any, None]:
    """Keeps the chunk and a copy of it, each made by its own lane."""
    if event.data == b"early":
        raise ValueError("poisoned before the wait")
    copies = yield from run_lanes([lambda: event.data, lambda: event.data[::-1]])
    if event.data == b"poison":
        raise ValueError("poisoned after the wait")
    context.chunks.extend(copies)


def keep_error_later(context: Context, event: ReadFailed) -> Awaitable[None]:
    """Waits though it is neither a generator nor a coroutine function itself."""
    return _keep_error_later(context, event)


async def _keep_error_later(context: Context, event: ReadFailed) -> None:
    await checkpoint()
    context.error = event.reason


class DownloadCoMachine(CoMachine[State, Context]):
    """Collects chunks twice, waiting now and then."""

    INITIAL = State.IDLE
    TERMINAL = frozenset({State.DONE})
    FAILED = frozenset({State.FAILED})
    # fmt: off
    TABLE = (
        #   source          event       guard        effect            destination
        Row(State.IDLE,     Begin,      is_possible, start_slowly,     State.READING),
        Row(State.READING,  ChunkRead,  None,        store_in_lanes,   State.READING),
        Row(State.READING,  ReadFailed, None,        keep_error_later, State.FAILED),
        Row(State.READING,  None,       has_all,     None,             State.CHECKING),
        Row(State.CHECKING, None,       is_intact,   None,             State.DONE),
        Row(State.CHECKING, None,       None,        complain,         State.FAILED),
        Row(State.FAILED,   Reset,      None,        forget,           State.IDLE),
    )
    # fmt: on


class Switch(Enum):
    OFF = "off"
    ON = "on"


@dataclass(frozen=True, slots=True)
class Flip:
    """Change over."""


@dataclass(slots=True)
class SwitchContext:
    """`run` is what the effect does, so that a test can say it."""

    run: Callable[[], object] = int
    n_flips: int = 0
    result: object = None


def flip(context: SwitchContext, event: Flip) -> None:
    """Runs what the context says."""
    context.result = context.run()
    context.n_flips += 1


class SwitchMachine(Machine[Switch, SwitchContext]):
    """Changes over."""

    INITIAL = Switch.OFF
    TABLE = (
        Row(Switch.OFF, Flip, None, flip, Switch.ON),
        Row(Switch.ON, Flip, None, flip, Switch.OFF),
    )
