"""Records transitions while a `with trace(...)` block runs; costs nothing outside of one.

Tracing rewrites the compiled tables: each effect is wrapped by one that records its transition. Dispatch itself knows
nothing of it. A sink is any callable that takes a `Transition`: `list.append`, or a file of `emel.sm.trace_files`.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeAlias

from emel.lazy_dataclasses import dataclass
from emel.sm.machine import BaseMachine, defined_machines, definition_hooks
from emel.sm.row import name_of
from emel.sm.table import link_nodes, plain_effect, relink

if TYPE_CHECKING:
    from enum import Enum

    from emel.sm.row import AnyRow
    from emel.sm.table import Node


@dataclass(frozen=True, slots=True)
class Transition:
    """One row taken. Times are `perf_counter_ns`; a transition is recorded when its effect ends, nested ones first.

    `context_index` numbers the contexts in the order this trace met them. `error` is the exception of the effect:
    the machine then stayed in `source`.
    """

    machine: str
    context_index: int
    source: str
    event: str
    is_completion: bool
    guard: str | None
    effect: str | None
    destination: str
    begin_ns: int
    duration_ns: int
    thread_id: int
    error: str | None


Sink: TypeAlias = Callable[[Transition], object]


class _Recorder:
    """One sink and what it has seen; a sink that raises is not called again, so that tracing never stops a machine."""

    __slots__ = ("_indices", "_sink", "error")

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        # A context that was freed may hand its id, and so its index, to a later one.
        self._indices: dict[int, int] = {}
        self.error: Exception | None = None

    def record(
        self, machine: str, row: AnyRow[Any, Any], run: tuple[object, object, int], raised: BaseException | None
    ) -> None:
        if self.error is not None:
            return
        context, event, begin_ns = run
        transition = Transition(
            machine=machine,
            context_index=self._indices.setdefault(id(context), len(self._indices)),
            source=name_of(row.source),
            event=name_of(type(event)),
            is_completion=row.event is None,
            guard=None if row.guard is None else name_of(row.guard),
            effect=None if row.effect is None else name_of(row.effect),
            destination=name_of(row.destination),
            begin_ns=begin_ns,
            duration_ns=perf_counter_ns() - begin_ns,
            thread_id=threading.get_ident(),
            error=None if raised is None else repr(raised),
        )
        try:
            self._sink(transition)
        except Exception as error:
            self.error = error


def _traced(machine: str, row: AnyRow[Any, Any], recorders: tuple[_Recorder, ...]) -> Callable[[Any, Any], Any]:
    """The effect of `row`, recording its transition when it ends; does what the effect does in every other way."""
    effect = row.effect

    def record(run: tuple[object, object, int], raised: BaseException | None) -> None:
        for recorder in recorders:
            recorder.record(machine, row, run, raised)

    def run_effect(context: object, event: object) -> Any:
        run = (context, event, perf_counter_ns())
        try:
            waiting = None if effect is None else effect(context, event)
        except BaseException as raised:
            record(run, raised)
            raise
        if waiting is not None:
            return wait(run, waiting)
        record(run, None)
        return None

    @types.coroutine
    def wait(run: tuple[object, object, int], waiting: Any) -> Generator[Any, Any, None]:
        try:
            yield from waiting
        except BaseException as raised:
            record(run, raised)
            raise
        record(run, None)

    return run_effect


class _Traced:
    """Nodes that are being traced: those of a class, or a private copy of them that one machine holds."""

    __slots__ = ("name", "nodes", "recorders")

    def __init__(self, name: str, nodes: dict[Enum, Node]) -> None:
        self.name = name
        self.nodes = nodes
        self.recorders: list[_Recorder] = []

    def relink(self, everywhere: list[_Recorder]) -> None:
        recorders = (*everywhere, *self.recorders)
        relink(self.nodes, (lambda row: _traced(self.name, row, recorders)) if recorders else plain_effect)


_lock = threading.RLock()
_everywhere: list[_Recorder] = []
_private: dict[int, _Traced] = {}  # by id of the machine


@contextmanager
def trace(sink: Sink, machine: BaseMachine[Any, Any] | None = None) -> Iterator[None]:
    """Gives `sink` every transition of `machine`, or of every machine of the process, while the block runs.

    Blocks may nest and overlap. Raises MachineError when `machine` is in the middle of a dispatch as the block begins
    or ends. An exception of the sink ends the recording, not the machines; it is raised when the block ends.
    """
    recorder = _Recorder(sink)
    _add(recorder, machine)
    try:
        yield
    finally:
        _remove(recorder, machine)
    if recorder.error is not None:
        raise recorder.error


def _add(recorder: _Recorder, machine: BaseMachine[Any, Any] | None) -> None:
    with _lock:
        if machine is None:
            _everywhere.append(recorder)
            _relink_all()
            return
        traced = _private.get(id(machine))
        if traced is None:
            traced = _Traced(type(machine).__name__, link_nodes(machine.STATES, machine.TABLE, machine.FAILED))
            machine.move_to_nodes(traced.nodes)
            _private[id(machine)] = traced
        traced.recorders.append(recorder)
        traced.relink(_everywhere)


def _remove(recorder: _Recorder, machine: BaseMachine[Any, Any] | None) -> None:
    with _lock:
        if machine is None:
            _everywhere.remove(recorder)
            _relink_all()
            return
        traced = _private[id(machine)]
        traced.recorders.remove(recorder)
        traced.relink(_everywhere)
        if not traced.recorders:
            del _private[id(machine)]
            machine.move_to_nodes(machine.NODES)


def _relink_all() -> None:
    definition_hooks[:] = [hook for hook in definition_hooks if hook is not _relink_class]
    if _everywhere:
        definition_hooks.append(_relink_class)
    for machine_class in defined_machines():
        _relink_class(machine_class)
    for traced in _private.values():
        traced.relink(_everywhere)


def _relink_class(machine_class: type[BaseMachine[Any, Any]]) -> None:
    _Traced(machine_class.__name__, machine_class.NODES).relink(_everywhere)
