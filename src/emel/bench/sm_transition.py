"""The suite `sm`: one transition with a guard and an effect, and the same machine in other libraries where installed.

Two states that lead to each other by the same event; the guard reads an attribute, the effect writes it.
"""

from __future__ import annotations

import importlib.util
from enum import Enum
from typing import TYPE_CHECKING, Any

from emel.bench.sm_timing import Bar, calls_of, measure
from emel.lazy_dataclasses import dataclass
from emel.sm import CoMachine, Machine, Row
from emel.sm.policies import InlinePolicy
from emel.sm.trace import trace
from emel.sm.traps import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from emel.bench.sm_timing import Line, Timed

BARS = {
    "Machine": Bar(at_most_seconds=1.5e-6),
    "CoMachine": Bar(at_most_seconds=1.5e-6),
    "transitions": Bar(at_least_ratio=10),
    "python-statemachine": Bar(at_least_ratio=20),
}
LIBRARIES = {"transitions": "transitions", "python-statemachine": "statemachine"}  # package -> module


class Lamp(Enum):
    """The states."""

    OFF = "off"
    ON = "on"


@dataclass(frozen=True, slots=True)
class Flip:
    """The event."""


@dataclass(slots=True)
class Wiring:
    """The context."""

    is_broken: bool = False


def is_sound(context: Wiring, _event: Flip) -> bool:
    """The guard."""
    return not context.is_broken


def switch(context: Wiring, _event: Flip) -> None:
    """The effect."""
    context.is_broken = False


async def switch_later(context: Wiring, _event: Flip) -> None:
    """An effect that waits once."""
    await checkpoint()
    context.is_broken = False


def lamp(base: Any, effect: Callable[[Wiring, Flip], Any], *arguments: object) -> Any:
    """A machine of this kind, not to be found among those of EMEL."""
    table = (Row(Lamp.OFF, Flip, is_sound, effect, Lamp.ON), Row(Lamp.ON, Flip, is_sound, effect, Lamp.OFF))
    machine_class: Any = type("LampMachine", (base,), {"INITIAL": Lamp.OFF, "TABLE": table, "__module__": "benchmark"})
    return machine_class(Wiring(), *arguments)


def run(n_runs: int, n_warmup: int) -> list[Line]:
    """Measures everything that is installed."""
    subjects: dict[str, Timed] = {
        "Machine": calls_of(lamp(Machine, switch).dispatch, Flip()),
        "CoMachine": calls_of(lamp(CoMachine, switch).dispatch, Flip()),
        "CoMachine, asynchronous": calls_of(lamp(CoMachine, switch).dispatch_async, Flip()),
        "CoMachine by the core": calls_of(lamp(CoMachine, switch, InlinePolicy()).dispatch, Flip()),
        "CoMachine that waits": calls_of(lamp(CoMachine, switch_later).dispatch, Flip()),
        "Machine, traced": _traced(lamp(Machine, switch)),
    }
    for package, make in (("transitions", _transitions), ("python-statemachine", _python_statemachine)):
        if package not in missing_libraries():
            subjects[package] = make()
    return measure("transition", subjects, n_runs, n_warmup, BARS)


def missing_libraries() -> list[str]:
    """The packages of LIBRARIES that are not installed."""
    return [package for package, module in LIBRARIES.items() if importlib.util.find_spec(module) is None]


def _traced(machine: Any) -> Timed:
    timed = calls_of(machine.dispatch, Flip())

    def with_trace(n_calls: int) -> float:
        with trace(lambda _: None, machine):
            return timed(n_calls)

    return with_trace


def _transitions() -> Timed:
    from transitions import Machine as OtherMachine

    class Model:
        is_broken = False

        def is_sound(self) -> bool:
            return not self.is_broken

        def switch(self) -> None:
            self.is_broken = False

    model: Any = Model()
    rows = [
        {"trigger": "flip", "source": source, "dest": destination, "conditions": "is_sound", "before": "switch"}
        for source, destination in (("off", "on"), ("on", "off"))
    ]
    OtherMachine(model, states=["off", "on"], transitions=rows, initial="off", auto_transitions=False)
    return calls_of(lambda _: model.flip(), None)


def _python_statemachine() -> Timed:
    from statemachine import State, StateMachine

    class OtherLamp(StateMachine):
        off = State(initial=True)
        on = State()
        flip = off.to(on, cond="is_sound", on="switch") | on.to(off, cond="is_sound", on="switch")
        is_broken = False

        def is_sound(self) -> bool:
            return not self.is_broken

        def switch(self) -> None:
            self.is_broken = False

    machine = OtherLamp()
    return calls_of(lambda _: machine.flip(), None)
