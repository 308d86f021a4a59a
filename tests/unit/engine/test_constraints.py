"""Constraints of the Python API, over a model of random weights, which knows nothing of JSON."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import threading
import weakref
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

import emel
from emel.engine import grammar_check, matching
from emel.engine.grammar_check import CHECKER
from emel.errors import EmelError, RequestError
from unit.engine.conftest import n_open

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 3}, "size": {"enum": [1, 20, None]}},
    "required": ["name", "size"],
    "additionalProperties": False,
}
NO_SPACE = [(" ", False), ("\n", False)]
OBEYED: dict[str, tuple[dict[str, Any], str]] = {
    "regex": ({"regex": "[0-9]{2}-(a|b)"}, "[0-9]{2}-(a|b)"),
    "grammar": ({"grammar": 'root ::= "Hi " [0-9] [0-9]? "!"'}, "Hi [0-9]{1,2}!"),
    "choice": ({"choice": ("yes", "no", "a.b")}, r"yes|no|a\.b"),
    "one choice": ({"choice": "yes"}, "yes"),
}


@pytest.fixture(scope="module", autouse=True)
def _no_process_is_left() -> Iterator[None]:
    yield
    CHECKER.close()


@pytest.mark.parametrize("name", OBEYED)
def test_an_answer_obeys(model: emel.Model, name: str) -> None:
    given, pattern = OBEYED[name]
    done = model.generate("to be", seed=1, max_tokens=60, **given)
    assert re.fullmatch(pattern, done.text), done.text
    assert done.finish_reason == "stop"
    assert model.generate_ids(model.tokenize("to be"), seed=1, max_tokens=60, **given).text == done.text
    streamed = "".join(chunk.text for chunk in model.stream("to be", seed=1, max_tokens=60, **given))
    assert streamed == done.text


@pytest.mark.parametrize("schema", [SCHEMA, json.dumps(SCHEMA)])
def test_an_answer_is_json_of_a_schema(model: emel.Model, schema: Any) -> None:
    for done in model.generate_many(["to be", "or", "not"], json_schema=schema, logit_bias=NO_SPACE):
        jsonschema.validate(json.loads(done.text), SCHEMA)


def test_an_empty_schema_is_an_object(model: emel.Model) -> None:
    assert model.generate("to be", json_schema={}, max_tokens=1, temperature=0).text == "{"


def test_several_answers_obey_each_for_itself_on_one_prompt(model: emel.Model) -> None:
    given: dict[str, Any] = {"regex": "[0-9]{5}", "temperature": 2, "max_tokens": 20}
    together = [each.text for each in model.generate("to be", n=3, seed=5, **given).choices]
    assert together == [model.generate("to be", seed=5 + index, **given).text for index in range(3)]
    assert len(set(together)) == 3


def test_asyncio_obeys_too(model: emel.Model) -> None:
    given: dict[str, Any] = {"regex": "[0-9]{3}x", "seed": 2, "max_tokens": 20}
    expected = model.generate("to be", **given)

    async def talk() -> None:
        assert (await model.agenerate("to be", **given)).text == expected.text
        stream = model.astream("to be", **given)
        assert "".join([chunk.text async for chunk in stream]) == expected.text
        assert stream.completion is not None
        with pytest.raises(RequestError, match="regex cannot be used"):
            await model.agenerate("to be", regex="(")
        with pytest.raises(RequestError, match="regex cannot be used"):
            await anext(model.astream("to be", regex="("))

    asyncio.run(talk())
    assert n_open(model) == 0


def test_a_stream_that_is_left_while_its_constraint_is_compiled_asks_for_nothing(
    model: emel.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def check(grammar: str) -> str:
        begun.set()
        assert goes_on.wait(60)
        return ""

    monkeypatch.setattr(CHECKER, "check", check)

    async def talk() -> None:
        async with model.astream("to be", regex="[0-9]{4}left") as stream:
            while not begun.is_set():
                await asyncio.sleep(0.001)
        goes_on.set()
        assert stream.completion is None
        assert [chunk async for chunk in stream] == []

    before = model.wave.counters.n_submitted
    asyncio.run(talk())
    assert n_open(model) == 0
    assert model.wave.counters.n_submitted == before


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "two": ({"regex": "a", "choice": ["a"]}, "regex and choice exclude each other"),
    "one of its own": ({"regex": "a", "new_constraint": object}, "regex and new_constraint exclude each other"),
    "regex": ({"regex": "("}, "regex cannot be used"),
    "no text": ({"regex": 3}, "regex must be a text with at least one character: it is 3"),
    "no character": ({"grammar": ""}, "grammar must be a text with at least one character: it is ''"),
    "grammar": ({"grammar": "root ::= ("}, "grammar is no GBNF grammar"),
    "empty choice": ({"choice": [""]}, r"choice must be a list of texts with .*: it is \[''\]"),
    "no choice": ({"choice": []}, "choice must be a list of texts"),
    "schema": ({"json_schema": {"type": "x"}}, "json_schema cannot be used"),
    "json": ({"json_schema": "{"}, "json_schema is no JSON"),
    "no json": ({"json_schema": {"default": {1, 2}}}, "json_schema is no JSON schema"),
    "half a pair in a choice": ({"choice": ["yes", "n\udcff"]}, r"choice has '\\udcff', half of a surrogate pair"),
    "half a pair in a regex": ({"regex": "\ud800"}, r"regex has '\\ud800', half of a surrogate pair"),
    "half a pair in a grammar": ({"grammar": 'root ::= "\ud800"'}, "grammar has .* half of a surrogate pair"),
    "list": ({"json_schema": [1]}, r"json_schema must be a JSON schema, an object: it is \[1\]"),
    "alternatives that overlap": (
        {"json_schema": {"oneOf": [{"type": "integer"}, {"type": "number"}]}},
        "json_schema cannot be used: one value may obey several alternatives of its oneOf, .*: use anyOf$",
    ),
}


def test_class_that_has_a_schema_is_refused_with_how_to_get_it(model: emel.Model) -> None:
    class Person:
        def model_json_schema(self) -> dict[str, Any]:
            return {}

    with pytest.raises(RequestError, match="json_schema must be a JSON schema") as caught:
        model.generate("to be", json_schema=Person)
    assert caught.value.hint == "give what its model_json_schema() returns"


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_had_is_refused_before_anything_is_generated(model: emel.Model, name: str) -> None:
    given, reason = REFUSED[name]
    for ask in (model.generate, model.stream, lambda prompt, **given: model.generate_many([prompt], **given)):
        with pytest.raises(RequestError, match=reason):
            ask("to be", **given)
    assert n_open(model) == 0


def test_none_is_the_same_as_not_given(model: emel.Model) -> None:
    plain = model.generate("to be", temperature=0, max_tokens=5)
    nothing = dict.fromkeys(("json_schema", "grammar", "regex", "choice"))
    assert model.generate("to be", temperature=0, max_tokens=5, **nothing).text == plain.text


def test_a_missing_package_is_named(model: emel.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "emel.engine.matching", None)
    with pytest.raises(RequestError, match="regex needs the package") as caught:
        model.generate("to be", regex="a")
    assert caught.value.hint == "pip install 'emel[constraints]'"


def test_what_was_compiled_for_a_model_goes_with_it(tiny_path: Path) -> None:
    with emel.load(tiny_path, n_threads=1) as model:
        assert model.generate("to be", regex="[0-9]{3}", max_tokens=9).text.isdigit()
        tokenizer = weakref.ref(model.tokenizer)
    del model
    gc.collect()
    assert tokenizer() is None


def test_a_process_that_forked_has_a_checker_of_its_own() -> None:
    assert CHECKER.check("start: /a/") == ""
    ours = CHECKER._process
    assert ours is not None
    child = os.fork()
    if not child:
        is_right = CHECKER._process is None and CHECKER.check("start: /b/") == ""
        CHECKER.close()
        os._exit(0 if is_right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert CHECKER._process is ours
    assert CHECKER.check("start: /c/") == ""


def test_a_process_that_forked_does_not_wait_for_a_thread_that_compiled(model: emel.Model) -> None:
    with matching._lock:
        child = os.fork()
        if not child:
            os._exit(0 if matching._lock.acquire(timeout=5) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert model.generate("to be", choice="yes", max_tokens=9).text == "yes"


def test_a_process_finds_what_it_needs_wherever_it_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what lies in the working directory, though."""
    CHECKER.close()
    (tmp_path / "llguidance.py").write_text("raise SystemExit('taken from the working directory')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "src")
    assert CHECKER.check("start: /a/") == ""


def test_a_process_that_cannot_be_started_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    CHECKER.close()
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(EmelError, match="the process that tries constraints could not be started"):
        CHECKER.check("start: /a/")


def test_a_process_that_somebody_ended_is_started_again() -> None:
    assert CHECKER.check("start: /a/") == ""
    assert CHECKER._process is not None
    CHECKER._process.kill()
    os.waitid(os.P_PID, CHECKER._process.pid, os.WEXITED | os.WNOWAIT)
    assert CHECKER.check("start: /b/") == ""


def test_an_answer_that_was_not_waited_for_is_not_taken_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CHECKER.check("start: /a/") == ""

    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(grammar_check, "_read_within", interrupted)
        with pytest.raises(KeyboardInterrupt):
            CHECKER.check("start: /(/")
    assert CHECKER.check("start: /b/") == ""
