"""The programs of examples/ do what they say."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from server.conftest import Server

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.model
def test_the_openai_example_runs(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "openai_client.py"))["main"](f"{server.url}/v1")
    answer, place, *calls = capsys.readouterr().out.splitlines()
    assert "Paris" in answer
    assert set(ast.literal_eval(place)) == {"city", "country"}
    assert calls
    assert all("name='weather'" in call for call in calls)


@pytest.mark.model
def test_the_anthropic_example_runs(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "anthropic_client.py"))["main"](server.url)
    answer, called = capsys.readouterr().out.splitlines()
    assert "Paris" in answer
    assert called.startswith("weather {'city': ")


def test_the_langchain_example_is_python() -> None:
    """LangChain is no dependency of the tests."""
    path = EXAMPLES / "langchain_chat.py"
    compile(path.read_text(encoding="utf-8"), path, "exec")
