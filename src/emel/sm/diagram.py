"""A machine's table as text: Mermaid state diagram, aligned table, Markdown page."""

from __future__ import annotations

import inspect
import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from emel.sm.analysis import event_classes, functions, passing_states
from emel.sm.row import event_name, name_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from emel.sm.machine import BaseMachine

    MachineClass = type[BaseMachine[Any, Any]]

HEADINGS = ("source", "event", "guard", "effect", "destination")


def mermaid(machine: MachineClass) -> str:
    """A Mermaid `stateDiagram-v2`: one edge a row, `event [guard] / effect`; completion rows have no event."""
    lines = ["stateDiagram-v2", f"    [*] --> {machine.INITIAL.name}"]
    for row in machine.TABLE:
        parts = [] if row.event is None else [name_of(row.event)]
        if row.guard is not None:
            parts.append(f"[{name_of(row.guard)}]")
        if row.effect is not None:
            parts.append(f"/ {name_of(row.effect)}")
        label = f" : {' '.join(parts)}" if parts else ""
        lines.append(f"    {row.source.name} --> {row.destination.name}{label}")
    lines += [f"    {state.name} --> [*]" for state in machine.STATES if state in machine.TERMINAL]
    return "\n".join(lines) + "\n"


def table_rows(machine: MachineClass) -> list[tuple[str, str, str, str, str]]:
    """The cells of every row, in the order of HEADINGS; `-` where there is no guard or effect."""
    return [
        (
            row.source.name,
            event_name(row.event),
            "-" if row.guard is None else name_of(row.guard),
            "-" if row.effect is None else name_of(row.effect),
            row.destination.name,
        )
        for row in machine.TABLE
    ]


def text_table(machine: MachineClass) -> str:
    """The table with its columns aligned, for a terminal."""
    rows = [HEADINGS, *table_rows(machine)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines) + "\n"


def page(machine: MachineClass) -> str:
    """A Markdown page: what the machine is for, its file's rules, its diagram and table, and what each name means."""
    sections = [
        f"# {machine.__name__}",
        f"`{machine.__module__}.{machine.__qualname__}`",
        _docstring(machine),
        _file_header(machine),
        f"```mermaid\n{mermaid(machine)}```",
        "## Table\n\nRows are tried in order; the first whose guard holds wins.",
        _markdown_table(HEADINGS, table_rows(machine)),
        "## States",
        _markdown_table(("state", "role"), [(state.name, _roles(machine, state)) for state in machine.STATES]),
        "## Events",
        _markdown_table(
            ("event", "fields", "meaning"),
            [(event.__name__, _field_names(event), summary(event)) for event in event_classes(machine)],
        ),
    ]
    for role, heading in (("guard", "Guards"), ("effect", "Effects")):
        named = [(name_of(function), summary(function)) for function in functions(machine, role)]
        if named:
            sections += [f"## {heading}", _markdown_table((role, "meaning"), named)]
    return "\n\n".join(section for section in sections if section) + "\n"


def _file_header(machine: MachineClass) -> str:
    module = sys.modules.get(machine.__module__)
    return "" if module is None else _docstring(module)


def _roles(machine: MachineClass, state: object) -> str:
    roles = {
        "initial": state is machine.INITIAL,
        "terminal": state in machine.TERMINAL,
        "failed": state in machine.FAILED,
        "passed through, never rested in": state in passing_states(machine),
    }
    return ", ".join(role for role, holds in roles.items() if holds)


def _field_names(event: type[Any]) -> str:
    return ", ".join(field.name for field in fields(event))


def _docstring(thing: object) -> str:
    # The class's own text: a dataclass without one gets its signature, which is no meaning.
    text = vars(thing).get("__doc__") if isinstance(thing, type) else getattr(thing, "__doc__", None)
    text = inspect.cleandoc(text or "")
    return "" if isinstance(thing, type) and text.startswith(f"{thing.__name__}(") else text


def summary(thing: object) -> str:
    """The first paragraph of what a machine, an event or a function says of itself, in one line; empty without one."""
    return " ".join(_docstring(thing).split("\n\n", maxsplit=1)[0].split())


def _markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *[[cell.replace("|", "\\|") for cell in row] for row in rows]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
