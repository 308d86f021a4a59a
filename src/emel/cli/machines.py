"""`emel machines`: the state machines inside, from their own tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emel.cli.terminal import write_out
from emel.errors import EmelError

if TYPE_CHECKING:
    import argparse

    from emel.sm.machine import BaseMachine


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="one machine (any case, with or without 'Machine')")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--table", action="store_true", help="its transition table (default with a NAME)")
    shape.add_argument("--diagram", action="store_true", help="its diagram, as Mermaid")
    parser.epilog = "Without NAME: the list of all machines, or all their tables or diagrams."


def run(arguments: argparse.Namespace) -> int:
    """Prints the list, tables or diagrams."""
    from emel.sm.diagram import mermaid, text_table
    from emel.sm.registry import find_machine, machine_classes

    if arguments.name:
        try:
            machines = [find_machine(arguments.name)]
        except LookupError as error:
            raise EmelError(str(error.args[0]), hint="emel machines lists them") from error
    else:
        machines = machine_classes()
    if not (arguments.name or arguments.table or arguments.diagram):
        write_out(_list(machines))
        return 0
    render = mermaid if arguments.diagram else text_table
    if len(machines) == 1:
        write_out(render(machines[0]))
        return 0
    comment = "%% " if arguments.diagram else ""
    write_out("\n".join(f"{comment}{machine.__name__}\n{render(machine)}" for machine in machines))
    return 0


def _list(machines: list[type[BaseMachine[Any, Any]]]) -> str:
    from emel.sm.diagram import summary

    cells = [
        (
            machine.__name__,
            f"{len(machine.STATES)} states",
            f"{len(machine.TABLE)} rows",
            machine.__module__,
            summary(machine),
        )
        for machine in machines
    ]
    widths = [max((len(row[column]) for row in cells), default=0) for column in range(4)]
    return "".join(
        f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]:<{widths[3]}}  {row[4]}".rstrip()
        + "\n"
        for row in cells
    )
