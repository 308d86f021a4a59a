from __future__ import annotations

from pathlib import Path

import pytest

from emel.sm import Machine
from emel.sm.diagram import page
from emel.sm.pages import INDEX, MARK, USAGE, main, render_pages, stale_pages, write_pages
from emel.sm.registry import machine_classes
from unit.sm.samples import DownloadMachine, State, SwitchMachine

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "machines"


def test_pages_in_the_documentation_are_those_of_the_machines() -> None:
    assert stale_pages(DOCUMENTATION, render_pages(machine_classes())) == [], "run `python -m emel.sm.pages`"


def test_pages_are_one_a_machine_and_an_index() -> None:
    pages = render_pages([DownloadMachine, SwitchMachine])
    assert list(pages) == ["sm.DownloadMachine.md", "sm.SwitchMachine.md", INDEX]
    assert pages["sm.DownloadMachine.md"] == MARK + "\n" + page(DownloadMachine)
    assert "| [DownloadMachine](sm.DownloadMachine.md) | `unit.sm.samples` | 7 | Collects chunks. |\n" in pages[INDEX]


def test_machines_that_would_share_a_page_are_refused() -> None:
    twin = type("SwitchMachine", (Machine,), {"INITIAL": SwitchMachine.INITIAL, "TABLE": SwitchMachine.TABLE})
    twin.__module__ = "unit.sm.others"
    with pytest.raises(ValueError, match="two machines are called SwitchMachine in one package: rename one"):
        render_pages([SwitchMachine, twin])


def test_machine_of_a_module_outside_any_package_has_a_page() -> None:
    lone = type("LoneMachine", (Machine,), {"INITIAL": State.IDLE, "TABLE": DownloadMachine.TABLE})
    lone.__module__ = "lone"
    pages = render_pages([lone])
    assert list(pages) == ["lone.LoneMachine.md", INDEX]
    assert "| [LoneMachine](lone.LoneMachine.md) | `lone` | 7 |  |\n" in pages[INDEX]


def test_written_pages_are_not_stale(tmp_path: Path) -> None:
    pages = render_pages([DownloadMachine, SwitchMachine])
    folder = tmp_path / "new" / "machines"
    write_pages(folder, pages)
    assert stale_pages(folder, pages) == []


def test_missing_changed_and_left_over_pages_are_stale_and_rewritten(tmp_path: Path) -> None:
    write_pages(tmp_path, render_pages([DownloadMachine, SwitchMachine]))
    handwritten = tmp_path / "notes.md"
    handwritten.write_text("# Notes\n")
    pages = render_pages([DownloadMachine])
    (tmp_path / "sm.DownloadMachine.md").unlink()
    assert stale_pages(tmp_path, pages) == [
        "README.md differs from its machine",
        "sm.DownloadMachine.md is missing",
        "sm.SwitchMachine.md belongs to no machine",
    ]
    write_pages(tmp_path, pages)
    assert stale_pages(tmp_path, pages) == []
    assert handwritten.read_text() == "# Notes\n"
    assert not (tmp_path / "sm.SwitchMachine.md").exists()


def test_command_writes_then_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "machines"
    assert main(["--check", str(folder)]) == 1
    assert f"{folder}: README.md is missing; run `python -m emel.sm.pages {folder}`\n" in capsys.readouterr().err
    assert main([str(folder)]) == 0
    assert main(["--check", str(folder)]) == 0
    assert capsys.readouterr() == ("", "")
    assert (folder / INDEX).read_text(encoding="utf-8").startswith(MARK)


def test_command_has_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([]) == 0
    assert (tmp_path / "docs" / "machines" / INDEX).is_file()


@pytest.mark.parametrize("arguments", [["one", "two"], ["--write"], ["-h"]])
def test_command_refuses_other_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err == USAGE + "\n"
