from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import emel
from emel.sm import BaseMachine
from emel.sm.registry import find_machine, machine_classes, machine_modules
from unit.sm.samples import DownloadMachine

PLAIN = '''
from enum import Enum
from dataclasses import dataclass
from emel.sm import Machine, Row

class State(Enum):
    ONE = 1

@dataclass(frozen=True, slots=True)
class Go:
    """Go."""

class {name}(
    Machine[State, None],
):
    INITIAL = State.ONE
    TABLE = (Row(State.ONE, Go, None, None, State.ONE),)
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A package with machines in a module, a subpackage and its own __init__, and modules that must not be imported."""
    name = f"sample_{abs(hash(request.node.name))}"
    root = tmp_path / name
    (root / "inner").mkdir(parents=True)
    (root / "not-a-package").mkdir()
    (root / "__init__.py").write_text("")
    (root / "zeta.py").write_text(PLAIN.format(name="ZetaMachine"))
    (root / "inner" / "__init__.py").write_text(PLAIN.format(name="InnerMachine"))
    (root / "inner" / "twin.py").write_text(PLAIN.format(name="ZetaMachine"))
    (root / "inner" / "poison.py").write_text(
        "raise AssertionError('imported without need')\n# a Machine[ in a comment\n"
    )
    (root / "not-a-package" / "stray.py").write_text(PLAIN.format(name="StrayMachine"))
    (root / "notes.txt").write_text(PLAIN.format(name="NotesMachine"))
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_registry_finds_the_machines_of_a_package_in_order(package: str) -> None:
    assert machine_modules(package) == [f"{package}.inner", f"{package}.inner.twin", f"{package}.zeta"]
    assert [f"{each.__module__}.{each.__name__}" for each in machine_classes(package)] == [
        f"{package}.inner.InnerMachine",
        f"{package}.inner.twin.ZetaMachine",
        f"{package}.zeta.ZetaMachine",
    ]


def test_registry_lists_no_machine_of_another_package(package: str) -> None:
    assert DownloadMachine.TABLE
    assert all(each.__module__.startswith(package) for each in machine_classes(package))
    assert all(each.__module__.startswith("emel.") for each in machine_classes())


@pytest.mark.parametrize("name", ["InnerMachine", "innermachine", "inner", "INNER"])
def test_machine_is_found_by_its_name(package: str, name: str) -> None:
    assert find_machine(name, package).__name__ == "InnerMachine"


def test_unknown_machine_is_an_error_that_names_those_there_are(package: str) -> None:
    with pytest.raises(LookupError, match=r"machine 'xyz' is unknown; machines: InnerMachine, "):
        find_machine("xyz", package)


def test_ambiguous_machine_is_an_error_that_names_its_candidates(package: str) -> None:
    with pytest.raises(LookupError) as caught:
        find_machine("zeta", package)
    assert caught.value.args == (
        f"machine 'zeta' is ambiguous: {package}.inner.twin.ZetaMachine, {package}.zeta.ZetaMachine",
    )


def test_package_without_machines_has_none() -> None:
    assert machine_classes("emel.sm") == []
    with pytest.raises(LookupError, match="machine 'x' is unknown; machines: none"):
        find_machine("x", "emel.sm")


def test_registry_misses_no_table_of_the_sources() -> None:
    root = Path(emel.__path__[0])
    with_table = {
        path.relative_to(root.parent).with_suffix("").as_posix().replace("/", ".")
        for path in root.rglob("*.py")
        if "\n    TABLE = (" in path.read_text(encoding="utf-8")
    }
    assert with_table <= set(machine_modules())
    assert len(machine_classes()) >= len(with_table) > 0


def test_registry_imports_no_more_than_the_machines_need() -> None:
    code = "import sys; from emel.sm.registry import machine_modules; machine_modules(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    outside = [each for each in loaded if each.startswith("emel.") and not each.startswith("emel.sm")]
    assert outside == ["emel.lazy_dataclasses"]


def test_every_machine_class_is_a_machine() -> None:
    assert all(issubclass(each, BaseMachine) for each in machine_classes())


def test_unknown_machine_is_guessed(package: str) -> None:
    with pytest.raises(LookupError, match=r"machine 'iner' is unknown \(did you mean InnerMachine\?\); machines: "):
        find_machine("iner", package)
