"""A bounded model checker for tables: what can happen whatever the contexts are.

Every guard may hold or not; asked again for the same event before an effect has run, it answers the same, as guards are
pure. Every effect may raise, which leaves the machine at the source of its row. From INITIAL, every event is tried in
every state a machine can be left in. What is found to be impossible is impossible; what is found possible may still be
ruled out by what the effects do.

`walk` does the same with real machines: it tries every event in every combination of states it can bring about.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeVar

from emel.lazy_dataclasses import dataclass
from emel.sm.analysis import event_classes
from emel.sm.row import event_name

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
    from enum import Enum

    from emel.sm.machine import BaseMachine

    MachineClass = type[BaseMachine[Any, Any]]
    Guard = Callable[[Any, Any], bool]
    Answers = frozenset[tuple[Guard, bool]]  # of guards asked since the last effect

M = TypeVar("M")
_NO_ANSWERS: frozenset[Any] = frozenset()


@dataclass(slots=True)
class Exploration:
    """What a table allows. `ends` maps (state, event) to the states in which the run of that event can come to rest.

    `resting` are the states runs come to rest in, `interrupted` those an exception of an effect can leave a machine in.
    """

    machine: MachineClass
    ends: dict[tuple[Enum, type], set[Enum]] = field(default_factory=dict)
    resting: set[Enum] = field(default_factory=set)
    interrupted: set[Enum] = field(default_factory=set)
    fired: set[int] = field(default_factory=set)  # indices of the rows that can fire
    endless: set[tuple[Enum, type]] = field(default_factory=set)  # the run of this event need not come to rest

    def faults(self) -> list[str]:
        """One line for everything that cannot be meant; empty for a sound table."""
        name = self.machine.__name__
        found = [
            f"{name}.TABLE[{index}] ({row}) can never fire"
            for index, row in enumerate(self.machine.TABLE)
            if index not in self.fired
        ]
        found += [
            f"{name}: {event_name(event)} in {state.name} can go round in a circle of rows without effects"
            for state, event in sorted(self.endless, key=lambda each: (each[0].name, each[1].__name__))
        ]
        for state in self.machine.STATES:
            if state in self.resting and state not in self.machine.TERMINAL:
                onward = self._reachable(state)
                if not onward:
                    found.append(f"{name}: {state.name} is dead: no event leads on, and it is not TERMINAL")
                elif self.machine.TERMINAL and not onward & self.machine.TERMINAL:
                    found.append(f"{name}: no TERMINAL state can be reached from {state.name}")
        return found

    def _reachable(self, state: Enum) -> set[Enum]:
        """The states that events lead to from `state`, one after the other."""
        found: set[Enum] = set()
        frontier = [state]
        while frontier:
            source = frontier.pop()
            ends = set().union(*(ends for (at, _), ends in self.ends.items() if at is source))
            frontier += ends - found
            found |= ends
        return found


def explore(machine: MachineClass) -> Exploration:
    """Follows every event from every state that can be reached, with every answer of every guard."""
    found = Exploration(machine, resting={machine.INITIAL})
    events = event_classes(machine)
    followed: set[Enum] = set()
    while left := (found.resting | found.interrupted) - followed:
        for state in left:
            followed.add(state)
            for event in events:
                if ends := _runs(found, state, event):
                    found.ends[state, event] = ends
                    found.resting |= ends
    return found


def _runs(found: Exploration, state: Enum, event: type) -> set[Enum]:
    """The states that runs of `event` from `state` come to rest in."""
    ends: set[Enum] = set()
    seen: set[tuple[Enum, Answers]] = set()
    quiet: dict[tuple[Enum, Answers], set[tuple[Enum, Answers]]] = {}  # steps without an effect
    frontier: list[tuple[Enum, Answers]] = []

    def step(at: Enum, kind: type | None, answers: Answers) -> None:
        for index, known in _choices(found.machine, at, kind, answers):
            if index is None:
                if kind is None:
                    ends.add(at)
                continue
            row = found.machine.TABLE[index]
            found.fired.add(index)
            if row.effect is not None:
                found.interrupted.add(at)
            after = (row.destination, known if row.effect is None else _NO_ANSWERS)
            if row.effect is None and kind is None:
                quiet.setdefault((at, answers), set()).add(after)
            frontier.append(after)

    step(state, event, _NO_ANSWERS)
    while frontier:
        place = frontier.pop()
        if place not in seen:
            seen.add(place)
            step(place[0], None, place[1])
    if _has_circle(quiet):
        found.endless.add((state, event))
    return ends


def _choices(
    machine: MachineClass, state: Enum, kind: type | None, answers: Answers
) -> Iterator[tuple[int | None, Answers]]:
    """The rows of (state, kind) that can be taken, by index, with what the guards must have answered; None: none is."""
    known = dict(answers)
    for index, row in enumerate(machine.TABLE):
        if row.source is not state or row.event is not kind:
            continue
        if row.guard is None or known.get(row.guard):
            yield index, frozenset(known.items())
            return
        if row.guard not in known:
            yield index, frozenset((known | {row.guard: True}).items())
            known[row.guard] = False
    yield None, frozenset(known.items())


def _has_circle(steps: Mapping[Any, set[Any]]) -> bool:
    """Whether some of these steps can be taken for ever."""
    left = {place: set(after) for place, after in steps.items()}
    while ended := [place for place, after in left.items() if not any(each in left for each in after)]:
        for place in ended:
            del left[place]
    return bool(left)


def walk(
    make: Callable[[], M],
    events: Sequence[object],
    dispatch: Callable[[M, object], object],
    key: Callable[[M], Hashable],
    max_depth: int = 8,
) -> dict[Hashable, tuple[object, ...]]:
    """What real machines, alone or together, can be brought to: `key` of each situation, and the shortest way there.

    Each situation is made anew by `make` and the events that lead to it, so nothing needs to be copied. `key` says what
    counts as the same; `dispatch` delivers one event and absorbs the refusals that are legal. Stops at `max_depth`
    events.
    """
    ways: dict[Hashable, tuple[object, ...]] = {key(make()): ()}
    frontier: list[tuple[object, ...]] = [()]
    for _ in range(max_depth):
        found: list[tuple[object, ...]] = []
        for way in frontier:
            for event in events:
                machine = make()
                for each in (*way, event):
                    dispatch(machine, each)
                if ways.setdefault(key(machine), (*way, event)) == (*way, event):
                    found.append((*way, event))
        if not found:
            break
        frontier = found
    return ways
