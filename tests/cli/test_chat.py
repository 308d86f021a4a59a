"""emel chat, with the fake engine: piped, and on a terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cli.process import FAKE, Terminal, run_emel

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "empty.gguf"
    path.touch()
    return str(path)


def calls_of(folder: Path) -> list[list[dict[str, str]]]:
    """The message lists the engine was given."""
    entries: list[dict[str, Any]] = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    return [entry["messages"] for entry in entries if entry["call"] == "chat"]


def talk(lines: str, model: str, folder: Path, *words: str) -> tuple[str, str]:
    extra = {"FAKE_LOG": str(folder / "log")}
    outcome = run_emel("chat", model, *words, folder=folder, program=FAKE, stdin=lines, extra=extra)
    assert outcome.code == 0
    return outcome.out, outcome.err


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def test_chat_answers_line_by_line_and_remembers(tmp_path: Path, model: str) -> None:
    out, err = talk("one\n\ntwo\n", model, tmp_path)
    assert out == "one 0 1 2\ntwo 0 1 2\n"
    assert err == ""
    assert calls_of(tmp_path) == [[user("one")], [user("one"), assistant("one 0 1 2"), user("two")]]


def test_chat_commands(tmp_path: Path, model: str) -> None:
    lines = "one\n/reset\ntwo\n/system Be kind.\nthree\n/system\nfour\n/flurb\n//five\n/help\n/exit\nsix\n"
    out, err = talk(lines, model, tmp_path, "-sys", "Be brief.")
    assert out.splitlines() == [f"{word} 0 1 2" for word in ("one", "two", "three", "four", "/five")]
    brief, kind = {"role": "system", "content": "Be brief."}, {"role": "system", "content": "Be kind."}
    calls = calls_of(tmp_path)
    assert calls[:4] == [[brief, user("one")], [brief, user("two")], [kind, user("three")], [user("four")]]
    assert calls[4][-1] == user("/five")
    assert "emel: error: there is no command /flurb\nhint: /help lists them" in err
    assert "/reset        forget the conversation" in err


def test_chat_joins_continued_lines(tmp_path: Path, model: str) -> None:
    talk("one\\\ntwo\n", model, tmp_path)
    assert calls_of(tmp_path) == [[user("one\ntwo")]]


def test_chat_goes_on_after_a_refused_request(tmp_path: Path, model: str) -> None:
    out, err = talk("too long\none\n", model, tmp_path)
    assert out == "one 0 1 2\n"
    assert err == (
        "emel: error: the prompt has 9000 tokens, the context 2048\nhint: /reset forgets the conversation so far\n"
    )
    assert calls_of(tmp_path)[1] == [user("one")]


def test_chat_verbose_shows_figures(tmp_path: Path, model: str) -> None:
    _, err = talk("one\n", model, tmp_path, "-v")
    assert err.startswith("[5 prompt tokens at")


def test_chat_interrupt_stops_the_answer_and_not_the_program(tmp_path: Path, model: str) -> None:
    extra = {"FAKE_LOG": str(tmp_path / "log"), "FAKE_PIECES": "1000", "FAKE_DELAY": "0.02"}
    terminal = Terminal(tmp_path, ["chat", model], extra)
    terminal.read_until("Ctrl-D ends")
    terminal.read_until("> ")
    terminal.type("one\n")
    terminal.read_until("one 0 1")
    terminal.type("\x03")
    terminal.read_until("(stopped)")
    terminal.read_until("> ")
    terminal.interrupt_prompt("(Ctrl-D or /exit ends)")
    terminal.type("two\n")
    terminal.read_until("two 0")
    terminal.type("\x03")
    terminal.read_until("(stopped)")
    terminal.read_until("> ")
    terminal.type("\x04")
    assert terminal.end() == 0
    first, second = calls_of(tmp_path)
    assert first == [user("one")]
    assert second[0] == user("one")
    assert second[1]["content"].startswith("one 0 1")  # what was said stays said
    assert second[2] == user("two")


def test_chat_keeps_a_line_history(tmp_path: Path, model: str) -> None:
    terminal = Terminal(tmp_path, ["chat", model], {"FAKE_LOG": str(tmp_path / "log"), "TERM": "xterm"})
    terminal.read_until("> ")
    terminal.type("first line\n")
    terminal.read_until("first line 0 1 2")
    terminal.read_until("> ")
    terminal.type("\x1b[A\n")  # the up key brings it back
    terminal.read_until("first line 0 1 2")
    terminal.type("/exit\n")
    assert terminal.end() == 0
    assert calls_of(tmp_path)[1][-1] == user("first line")
