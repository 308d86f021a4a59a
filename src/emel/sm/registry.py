"""Finds every machine of a package.

Only modules whose source defines a machine are imported: listing machines stays quick, and needs no optional extra.
"""

from __future__ import annotations

import difflib
import importlib
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from emel.sm.machine import BaseMachine, defined_machines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

_DEFINES_MACHINE = re.compile(rb"^class\s+\w+\(\s*(?:\w+\.)*\w*Machine\b", re.MULTILINE)


def machine_classes(package: str = "emel") -> list[type[BaseMachine[Any, Any]]]:
    """The machine classes with a table defined in `package`, ordered by module and name; imports their modules.

    Raises what such an import raises.
    """
    for module in machine_modules(package):
        importlib.import_module(module)
    found = [each for each in defined_machines() if f"{each.__module__}.".startswith(f"{package}.")]
    return sorted(set(found), key=lambda each: (each.__module__, each.__name__))


def find_machine(name: str, package: str = "emel") -> type[BaseMachine[Any, Any]]:
    """The machine class of this name (any case, `Machine` at its end may be left out).

    Raises LookupError naming the machines there are when none or several match.
    """
    classes = machine_classes(package)
    wanted = _plain(name)
    found = [each for each in classes if _plain(each.__name__) == wanted]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(f"{each.__module__}.{each.__name__}" for each in found)
        raise LookupError(f"machine {name!r} is ambiguous: {names}")
    by_plain_name = {_plain(each.__name__): each.__name__ for each in classes}
    close = difflib.get_close_matches(wanted, by_plain_name, n=1)
    guess = f" (did you mean {by_plain_name[close[0]]}?)" if close else ""
    names = ", ".join(each.__name__ for each in classes) or "none"
    raise LookupError(f"machine {name!r:.80} is unknown{guess}; machines: {names}")


def _plain(name: str) -> str:
    return name.casefold().removesuffix("machine")


def machine_modules(package: str = "emel") -> list[str]:
    """The names of the modules of `package` whose source defines a machine, in alphabetical order."""
    return sorted(_modules_in(files(package), package))


def _modules_in(folder: Traversable, package: str) -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.is_dir():
            if entry.name.isidentifier():
                yield from _modules_in(entry, f"{package}.{entry.name}")
        elif entry.name.endswith(".py") and _DEFINES_MACHINE.search(entry.read_bytes()):
            stem = entry.name.removesuffix(".py")
            yield package if stem == "__init__" else f"{package}.{stem}"
