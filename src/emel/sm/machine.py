"""State machines as data: a class has a table of rows, an object has a state and a context.

1. `dispatch(event)` runs to completion: the first row of (state, event) whose guard holds, then completion rows
   (event None) until none is enabled. Nothing is queued, deferred or left behind; completion steps are bounded.
2. An event without an enabled row raises `UnexpectedEvent` and changes nothing. Guards are pure, so asking is free.
3. An effect runs while the state is still the source. If it raises, the exception propagates and the machine stays at
   the source of that row (a completion row that raises leaves the rows before it done); it then takes events again.
4. No machine dispatches to itself, and each has one writer: a dispatch during a dispatch raises `ReentrantDispatch`.
5. Events match by exact class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn

from emel.sm.errors import CompletionOverflow, MachineError, ReentrantDispatch, TableError, UnexpectedEvent
from emel.sm.row import C, S
from emel.sm.table import accepted_events, check_table, guard_names, link_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from enum import Enum

    from emel.sm.row import AnyRow
    from emel.sm.table import Node, Steps

# Stands for the rows of a machine that is running: it accepts nothing, so the fast path needs no flag of its own.
RUNNING: Mapping[type, Steps] = {}

# Called with every machine class when it is defined; tracing reaches classes through it that are imported later.
definition_hooks: list[Callable[[type[BaseMachine[Any, Any]]], None]] = []


class BaseMachine(Generic[S, C]):
    """What plain and coroutine machines share: the compiled table, the state, the context.

    A subclass sets INITIAL and TABLE; TERMINAL names the states a machine never leaves, FAILED those in which a run
    ended with an error. The table is checked and compiled when the class is defined (`TableError`).
    """

    __slots__ = ("_accepts", "_node", "context")

    INITIAL: S
    TABLE: tuple[AnyRow[S, C], ...]
    TERMINAL: frozenset[S] = frozenset()
    FAILED: frozenset[S] = frozenset()
    MAX_COMPLETIONS: ClassVar[int] = 1024
    EFFECTS_MAY_WAIT: ClassVar[bool] = False
    STATES: ClassVar[type[Enum]]
    NODES: ClassVar[dict[Enum, Node]]

    context: C
    _node: Node
    _accepts: Mapping[type, Steps]

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if vars(cls).keys().isdisjoint(("INITIAL", "TABLE", "TERMINAL", "FAILED")):
            return
        cls.STATES = check_table(cls, may_wait=cls.EFFECTS_MAY_WAIT)
        cls.NODES = link_nodes(cls.STATES, cls.TABLE, cls.FAILED)
        for hook in definition_hooks:
            hook(cls)

    def __init__(self, context: C) -> None:
        if not hasattr(self, "NODES"):
            raise TableError(
                f"{type(self).__name__} defines no INITIAL and TABLE: only a class with a table has machines"
            )
        self.context = context
        self._node = self.NODES[self.INITIAL]
        self._accepts = self._node.accepts

    @property
    def state(self) -> S:
        """The state now; during an effect, the source of its row."""
        return self._node.state  # type: ignore[return-value]

    @property
    def accepted(self) -> tuple[type, ...]:
        """The event classes that have a row in the state now, whatever their guards say."""
        return accepted_events(self._node)

    @property
    def is_running(self) -> bool:
        """Whether a dispatch is under way."""
        return self._accepts is RUNNING

    @property
    def is_terminal(self) -> bool:
        """Whether the state is one this machine never leaves."""
        return self._node.state in self.TERMINAL

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._node.state.name}>"

    def move_to_nodes(self, nodes: dict[Enum, Node]) -> None:
        """Goes on in the same state of another compilation of the table; raises MachineError during a dispatch."""
        if self._accepts is RUNNING:
            raise MachineError(f"{self!r} is running an event: begin and end its trace between two dispatches")
        self._node = nodes[self._node.state]
        self._accepts = self._node.accepts

    def _refusal(self, event: object) -> UnexpectedEvent | ReentrantDispatch:
        """The error for an event that no row took."""
        name, node = type(self).__name__, self._node
        if self._accepts is RUNNING:
            return ReentrantDispatch(name, node.state, event)
        guards = guard_names(node.accepts.get(type(event), ()))
        return UnexpectedEvent(name, node.state, event, accepted_events(node), guards)

    def _overflow(self, event: object) -> NoReturn:
        raise CompletionOverflow(type(self).__name__, self._node.state, event, self.MAX_COMPLETIONS)


class Machine(BaseMachine[S, C]):
    """A machine whose effects run to their end when called."""

    __slots__ = ()

    def dispatch(self, event: object) -> None:
        """Runs `event` to completion.

        Raises UnexpectedEvent and ReentrantDispatch (nothing changed), CompletionOverflow, and whatever an effect
        raises (the state is then the source of its row).
        """
        steps = self._accepts.get(type(event))
        if steps is None:
            raise self._refusal(event)
        self._accepts = RUNNING
        try:
            context = self.context
            for guard, effect, node in steps:
                if guard is None or guard(context, event):
                    if effect is not None:
                        effect(context, event)
                    self._node = node
                    if node.completions:
                        self._complete(event)
                    return
        finally:
            self._accepts = self._node.accepts
        raise self._refusal(event)

    def _complete(self, event: object) -> None:
        """Takes completion rows until none is enabled."""
        context, node, n_left = self.context, self._node, self.MAX_COMPLETIONS
        while True:
            for guard, effect, destination in node.completions:
                if guard is None or guard(context, event):
                    if not n_left:
                        self._overflow(event)
                    n_left -= 1
                    if effect is not None:
                        effect(context, event)
                    self._node = node = destination
                    break
            else:
                return


def defined_machines(base: type[BaseMachine[Any, Any]] = BaseMachine) -> Iterator[type[BaseMachine[Any, Any]]]:
    """Every machine class that has a table of its own, as far as modules are imported."""
    for machine_class in base.__subclasses__():
        if "NODES" in vars(machine_class):
            yield machine_class
        yield from defined_machines(machine_class)
