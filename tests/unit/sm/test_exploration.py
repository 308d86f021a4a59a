"""Every machine of EMEL, explored; and the engine held to what the exploration says can happen.

Invariant of the sequences: whatever the events, the answers of the guards and the effects that raise, a machine is left
at rest in a state the exploration knows, an event ends in a state it foresees, and a terminal state accepts nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from emel.io.source import CloseSource, OpenSource, SourceContext, SourceMachine, SourceState, Strategy, VerifySource
from emel.sm import BaseMachine, CoMachine, Machine, Row, UnexpectedEvent
from emel.sm.analysis import event_classes
from emel.sm.exploration import Exploration, explore, walk
from unit.io.fakes import FaultyPlatform
from unit.sm.samples import Begin, ChunkRead, DownloadMachine, Flip, ReadFailed, Reset, State
from unit.sm.test_all_machines import MachineClass, Untouchable, blank, every_machine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Place(Enum):
    A = 1
    B = 2
    C = 3
    D = 4


def holds(context: object, event: object) -> bool:
    return True


def also_holds(context: object, event: object) -> bool:
    return True


def act(context: object, event: object) -> None:
    pass


def define(*rows: Any, **attributes: Any) -> Any:
    return type("SketchMachine", (Machine,), {"INITIAL": Place.A, "TABLE": rows, **attributes})


@every_machine
def test_no_machine_has_a_fault(machine_class: MachineClass) -> None:
    found = explore(machine_class)
    assert found.faults() == []
    assert machine_class.INITIAL in found.resting
    left_behind = [name for name, ends in found.ends.items() if not ends]
    assert left_behind == []


def test_exploration_knows_where_every_event_can_end() -> None:
    found = explore(DownloadMachine)
    assert found.resting == {State.IDLE, State.READING, State.DONE, State.FAILED}
    assert found.interrupted == {State.IDLE, State.READING, State.CHECKING, State.FAILED}
    assert found.ends == {
        (State.IDLE, Begin): {State.READING, State.DONE, State.FAILED},
        (State.READING, ChunkRead): {State.READING, State.DONE, State.FAILED},
        (State.READING, ReadFailed): {State.FAILED},
        (State.FAILED, Reset): {State.IDLE},
    }
    assert found.fired == set(range(7))


def test_row_behind_the_same_question_can_never_fire() -> None:
    machine = define(
        Row(Place.A, Flip, holds, None, Place.B),
        Row(Place.B, None, holds, None, Place.C),
        Row(Place.B, None, None, None, Place.D),
        Row(Place.C, Flip, None, None, Place.A),
        Row(Place.D, Flip, None, None, Place.A),
    )
    assert explore(machine).faults() == [
        "SketchMachine.TABLE[2] (B + (completion) -> D) can never fire",
        "SketchMachine.TABLE[4] (D + Flip -> A) can never fire",
    ]


def test_question_is_asked_anew_after_an_effect() -> None:
    machine = define(
        Row(Place.A, Flip, holds, act, Place.B),
        Row(Place.B, None, holds, None, Place.C),
        Row(Place.B, None, None, None, Place.D),
        Row(Place.C, Flip, None, None, Place.A),
        Row(Place.D, Flip, None, None, Place.A),
    )
    assert explore(machine).faults() == []


def test_row_after_a_guard_that_failed_before_can_fire() -> None:
    machine = define(
        Row(Place.A, Flip, holds, None, Place.B),
        Row(Place.A, Flip, None, None, Place.C),
        Row(Place.B, Flip, None, None, Place.A),
        Row(Place.C, None, holds, None, Place.B),
        Row(Place.C, None, also_holds, None, Place.D),
        Row(Place.D, Flip, None, None, Place.A),
        Row(Place.C, Flip, None, None, Place.A),
    )
    assert explore(machine).faults() == ["SketchMachine.TABLE[3] (C + (completion) [holds] -> B) can never fire"]


def test_circle_of_rows_without_effects_is_endless() -> None:
    machine = define(
        Row(Place.A, Flip, None, None, Place.B),
        Row(Place.B, None, holds, None, Place.C),
        Row(Place.C, None, also_holds, None, Place.B),
        Row(Place.B, Flip, None, None, Place.A),
        Row(Place.C, Flip, None, None, Place.A),
    )
    assert explore(machine).faults() == [
        "SketchMachine: Flip in A can go round in a circle of rows without effects",
    ]
    with_effect = define(
        Row(Place.A, Flip, None, None, Place.B),
        Row(Place.B, None, holds, act, Place.B),
        Row(Place.B, Flip, None, None, Place.A),
    )
    assert explore(with_effect).faults() == []


def test_dead_and_trapped_states_are_named() -> None:
    dead = define(Row(Place.A, Flip, None, None, Place.B))
    assert explore(dead).faults() == ["SketchMachine: B is dead: no event leads on, and it is not TERMINAL"]
    trapped = define(
        Row(Place.A, Flip, holds, None, Place.D),
        Row(Place.A, Flip, None, None, Place.B),
        Row(Place.B, Flip, None, None, Place.C),
        Row(Place.C, Flip, None, None, Place.B),
        TERMINAL=frozenset({Place.D}),
    )
    assert explore(trapped).faults() == [
        "SketchMachine: no TERMINAL state can be reached from B",
        "SketchMachine: no TERMINAL state can be reached from C",
    ]


def test_state_an_exception_leaves_a_machine_in_is_explored_but_owes_no_way_on() -> None:
    machine = define(
        Row(Place.A, Flip, None, None, Place.B),
        Row(Place.B, None, None, act, Place.A),
        Row(Place.B, Begin, None, None, Place.A),
    )
    found = explore(machine)
    assert found.interrupted == {Place.B}
    assert found.resting == {Place.A}
    assert found.fired == {0, 1, 2}
    assert found.faults() == []


class Stopped(Exception):
    """Raised by an effect of a test."""


class Ruled:
    """The table of a machine class, with guards answered and effects stopped by the test."""

    def __init__(self, machine_class: MachineClass) -> None:
        self.answers: list[bool] = []
        self.n_effects_left = 0  # until one raises
        self.n_effects = 0
        self._known: dict[Any, bool] = {}
        self._guards: dict[Any, Callable[[Any, Any], bool]] = {}
        table = tuple(
            Row(row.source, row.event, self._guard(row.guard), row.effect and self._effect(), row.destination)
            for row in machine_class.TABLE
        )
        base: Any = CoMachine if issubclass(machine_class, CoMachine) else Machine
        attributes = {name: getattr(machine_class, name) for name in ("INITIAL", "TERMINAL", "FAILED")}
        ruled_class = type(f"Ruled{machine_class.__name__}", (base,), {**attributes, "TABLE": table})
        self.machine: BaseMachine[Any, Any] = ruled_class(Untouchable())

    def begin(self, answers: list[bool], n_effects: int) -> None:
        self.answers, self.n_effects_left, self.n_effects = answers, n_effects, 0
        self._known.clear()

    def _guard(self, guard: Any) -> Any:
        def ruled(context: object, event: object) -> bool:
            if guard not in self._known:
                self._known[guard] = bool(self.answers) and self.answers.pop()
            return self._known[guard]

        return None if guard is None else self._guards.setdefault(guard, ruled)

    def _effect(self) -> Callable[[Any, Any], None]:
        def ruled(context: object, event: object) -> None:
            if not self.n_effects_left:
                raise Stopped
            self.n_effects_left -= 1
            self.n_effects += 1
            self._known.clear()

        return ruled


def sequences_of(machine_class: MachineClass, found: Exploration) -> type[RuleBasedStateMachine]:
    class Sequences(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.ruled = Ruled(machine_class)

        @rule(
            event=st.sampled_from(event_classes(machine_class)),
            answers=st.lists(st.booleans(), max_size=12),
            n_effects=st.integers(0, 40),
        )
        def dispatch(self, event: type, answers: list[bool], n_effects: int) -> None:
            machine: Any = self.ruled.machine
            before = machine.state
            self.ruled.begin(answers, n_effects)
            try:
                machine.dispatch(blank(event))
            except UnexpectedEvent:
                assert machine.state is before
                assert self.ruled.n_effects == 0
            except Stopped:
                assert machine.state in found.interrupted
            else:
                assert machine.state in found.ends[before, event]
                assert not machine_class.TERMINAL or before not in machine_class.TERMINAL

        @invariant()
        def is_at_rest_where_it_can_be(self) -> None:
            machine = self.ruled.machine
            assert not machine.is_running
            assert machine.state in found.resting | found.interrupted
            assert not (machine.is_terminal and machine.accepted)

    return Sequences


@every_machine
def test_machine_does_only_what_its_exploration_foresees(machine_class: MachineClass) -> None:
    run_state_machine_as_test(
        sequences_of(machine_class, explore(machine_class)),
        settings=settings(max_examples=20, stateful_step_count=15, deadline=None),
    )


@pytest.mark.parametrize("fail_at", range(12))
def test_every_combination_a_source_and_its_children_can_reach_ends_cleanly(tmp_path: Path, fail_at: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    made: list[SourceMachine] = []

    def make() -> SourceMachine:
        give_up_last()
        made.append(SourceMachine(SourceContext(platform=FaultyPlatform(fail_at))))
        return made[-1]

    def give_up_last() -> None:
        if made:
            machine = made.pop()
            if CloseSource in machine.accepted:
                machine.dispatch(CloseSource())
            platform = machine.context.platform
            assert isinstance(platform, FaultyPlatform)
            # What the system did not take back stays in quarantine, and nothing else stays.
            platform.assert_nothing_left(int(platform.has_failed and platform.calls[fail_at - 1] == "unmap"))

    def dispatch(machine: SourceMachine, event: object) -> None:
        before = machine.state
        try:
            machine.dispatch(event)
        except UnexpectedEvent:
            assert machine.state is before
        assert not machine.is_running

    def states(machine: SourceMachine) -> tuple[SourceState, object, object]:
        mapping, copy = machine.context.mapping, machine.context.copy
        assert (machine.context.error is not None) == (machine.state is SourceState.FAILED)
        assert (machine.context.view is not None) == (machine.state in {SourceState.MAPPED, SourceState.COPIED})
        return machine.state, mapping and mapping.state.name, copy and copy.state.name

    events = [OpenSource(str(path), strategy) for strategy in Strategy] + [VerifySource(), CloseSource()]
    ways = walk(make, events, dispatch, states, max_depth=3)
    give_up_last()
    found = cast("dict[tuple[SourceState, object, object], object]", ways)
    ends = {state for state, _, _ in found if state in SourceMachine.TERMINAL}
    assert ends
    without_fault = {
        (SourceState.IDLE, None, None),
        (SourceState.MAPPED, "MAPPED", None),
        (SourceState.COPIED, None, "COPIED"),
        (SourceState.CLOSED, None, None),
    }
    with_fault = {(SourceState.FAILED, None, None), (SourceState.CLOSED, "QUARANTINED", None)}
    assert set(ways) <= without_fault | with_fault
    if not fail_at:
        assert set(ways) == without_fault


def test_walk_finds_the_shortest_way_to_every_situation_and_stops() -> None:
    def dispatch(counter: list[int], event: int) -> None:
        counter[0] = min(5, counter[0] + event)

    ways = walk(lambda: [0], [1, 2], dispatch, lambda counter: counter[0])  # type: ignore[arg-type]
    assert ways == {0: (), 1: (1,), 2: (2,), 3: (1, 2), 4: (2, 2), 5: (1, 2, 2)}
    assert set(walk(lambda: [0], [1], dispatch, lambda counter: counter[0], max_depth=2)) == {0, 1, 2}  # type: ignore[arg-type]
