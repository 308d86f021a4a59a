"""Constraints are obeyed or refused. Answers are drawn at random among the tokens that are allowed, not by a model."""

from __future__ import annotations

import json
import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

import jsonschema
import pytest

from emel.engine import grammar_check
from emel.engine.grammar_check import CHECKER
from emel.server.constraints import constraint_of
from emel.server.errors import ApiError
from emel.server.shapes import ChatRequest
from emel.server.tools import tool_constraint
from unit.server.fake_model import FakeModel
from unit.server.schemas import SCHEMAS, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.testclient import TestClient

    from emel.server.served_model import ServedModel
    from emel.text.constraint import Constraint

MESSAGES = [{"role": "user", "content": "x"}]
_ENDINGS = b'"}]'


class Served:
    """As far as constraints look at it."""

    def __init__(self) -> None:
        self.model = FakeModel("x")


@pytest.fixture(scope="module")
def served() -> Iterator[ServedModel]:
    yield cast("ServedModel", Served())
    CHECKER.close()


def new_constraint(served: ServedModel, **fields: Any) -> Callable[[], Constraint]:
    found = constraint_of(served, ChatRequest.model_validate({"messages": MESSAGES, **fields}))
    assert found is not None
    return found


def allowed(constraint: Any, n_vocab: int) -> list[int]:
    constraint.mask()
    words = constraint._words
    return [token for token in range(n_vocab) if words[token >> 5] >> (token & 31) & 1]


def drawn(served: ServedModel, constraint: Constraint, seed: int, n_tokens: int = 3000) -> str | None:
    """An answer, drawn at random but fond of ends; None when it is not over after so many tokens."""
    model, rng = served.model, random.Random(seed)
    tokenizer = model.tokenizer
    data = bytearray()
    for _ in range(n_tokens):
        if constraint.is_over:
            return data.decode()
        tokens = allowed(constraint, model.n_vocab)
        assert tokens, bytes(data)
        ends = [each for each in tokens if each in tokenizer.end_ids]
        if ends and rng.random() < 0.3:
            return data.decode()
        closing = [each for each in tokens if tokenizer.token_bytes(each)[:1] in _ENDINGS] if data else []
        token = rng.choice(closing if closing and rng.random() < 0.5 else [t for t in tokens if t not in ends] or ends)
        if token in tokenizer.end_ids:
            return data.decode()
        constraint.accept(token)
        data += tokenizer.token_bytes(token)
    return None


def obeyed(served: ServedModel, schema: Schema, seed: int) -> bool:
    """Whether the schema is taken; then an answer obeys it, and says so by jsonschema as well."""
    try:
        new = new_constraint(served, response_format={"type": "json_schema", "json_schema": {"schema": schema}})
    except ApiError as error:
        return error.status != 400
    for index in range(3):
        text = drawn(served, new(), seed + index)
        assert text is not None
        checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
        jsonschema.validate(json.loads(text), schema, jsonschema.Draft202012Validator, format_checker=checker)
        assert not re.search(r"[ \n]{17}", re.sub(r'"(\\.|[^"\\])*"', "", text))
    return True


@pytest.mark.parametrize("part", range(10))
def test_a_schema_is_obeyed_or_refused(served: ServedModel, part: int) -> None:
    assert len(SCHEMAS) >= 200
    for index in range(part, len(SCHEMAS), 10):
        obeyed(served, SCHEMAS[index], index)


def test_most_schemas_are_taken(served: ServedModel) -> None:
    assert sum(obeyed(served, each, 0) for each in SCHEMAS[::7]) >= 0.75 * len(SCHEMAS[::7])


def test_a_schema_that_takes_too_long_to_compile_is_refused_and_the_next_is_taken(
    served: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_constraint(served, regex="[0-9]")  # starts the process
    monkeypatch.setattr(grammar_check, "MAX_SECONDS", 0.5)
    hostile = {"allOf": [{"type": "string", "pattern": f"a{{{index}}}.*b"} for index in range(30)]}
    with pytest.raises(ApiError, match=r"json_schema cannot be used: it takes longer than 0\.5 seconds to compile"):
        new_constraint(served, json_schema=hostile)
    with pytest.raises(ApiError, match=r"regex cannot be used: it takes longer than 0\.5 seconds to compile"):
        new_constraint(served, regex="(a|b)?" * 50_000)  # parsed at once; what a vocabulary's lexer needs takes an hour
    monkeypatch.setattr(grammar_check, "MAX_SECONDS", 30.0)
    assert drawn(served, new_constraint(served, regex="[2-4]{3}")(), 0) is not None


def test_a_process_that_died_is_started_again(served: ServedModel) -> None:
    CHECKER.check("start: /a/")
    process = CHECKER._process
    assert process is not None
    process.kill()
    process.wait()
    assert new_constraint(served, regex="[0-8]") is not None


def test_a_grammar_is_compiled_once(served: ServedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    first = new_constraint(served, regex="[0-7]")
    monkeypatch.setattr(CHECKER, "check", lambda grammar: "is asked again")
    again = new_constraint(served, regex="[0-7]")
    one, other = first(), again()
    one.mask()
    one.accept(served.model.tokenize("3", add_special=False)[0])
    assert one.is_over
    assert not other.is_over


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "regex": ({"regex": "("}, "regex cannot be used: "),
    "empty regex": ({"regex": ""}, "regex must be a text"),
    "grammar": ({"grammar": "root ::= ("}, "grammar is no GBNF grammar: "),
    "grammar without root": ({"grammar": 'a ::= "b"'}, "grammar is no GBNF grammar: No 'root' rule found"),
    "choice": ({"choice": [""]}, "choice must be a list of texts"),
    "schema": ({"json_schema": {"type": "x"}}, "json_schema cannot be used: "),
    "two": ({"regex": "a", "choice": ["a"]}, "regex and choice exclude each other"),
    "long": ({"regex": "a" * 600_000}, "regex has 600000 characters: 524288 are allowed"),
    "many rules": ({"grammar": 'root ::= "a"\n' * 2001}, "grammar has 2001 rules: 2000 are allowed"),
    "long choices": ({"choice": ["a" * 300_000] * 2}, "characters: 524288 are allowed"),
    "format": ({"response_format": {"type": "xml"}}, "response_format.type is 'xml'"),
    "no schema": ({"response_format": {"type": "json_schema"}}, "must have a schema"),
    "structured": (
        {"structured_outputs": {"structural_tag": "x"}},
        "structural_tag is not supported",
    ),
    "structured text": ({"structured_outputs": {"json": "{"}}, "structured_outputs is no JSON"),
    "nothing": ({"json_schema": {"$ref": "#"}}, "json_schema cannot be used: nothing obeys it"),
    "false": ({"structured_outputs": {"json": False}}, "structured_outputs cannot be used: "),
    "remote": ({"json_schema": {"$ref": "https://example.com/a.json"}}, "json_schema cannot be used: "),
    "file": ({"json_schema": {"$ref": "file:///etc/hostname"}}, "json_schema cannot be used: "),
}


REFUSED["others' name"] = ({"guided_json": {"type": "object"}}, "guided_json is not supported: use structured_outputs")
REFUSED["functions"] = ({"functions": [{"name": "f"}]}, "functions is not supported")
_NEXT = {"type": "object", "properties": {"n": {"$ref": "#"}}, "required": ["n"], "additionalProperties": False}
_TOOL = {"type": "function", "function": {"name": "f", "parameters": _NEXT}}
REFUSED["endless schema"] = ({"json_schema": _NEXT}, "json_schema cannot be used: nothing obeys it")
REFUSED["endless tool"] = (
    {"tools": [_TOOL], "tool_choice": "required"},
    "tool_choice cannot be used: nothing obeys it",
)


@pytest.mark.parametrize("name", REFUSED)
def test_a_constraint_that_cannot_be_had_is_400_before_anything_is_generated(
    serve: Callable[..., TestClient], name: str
) -> None:
    model = FakeModel("x")
    fields, reason = REFUSED[name]
    for body in ({"messages": MESSAGES, **fields}, {"messages": MESSAGES, "stream": True, **fields}):
        response = serve(model).post("/v1/chat/completions", json=body)
        assert response.status_code == 400
        assert reason in response.json()["error"]["message"]
        assert len(response.json()["error"]["message"]) < 700
    assert not model.requests


TAKEN: dict[str, tuple[dict[str, Any], str]] = {
    "regex": ({"regex": "[0-9]{3}-(a|b)"}, "[0-9]{3}-(a|b)"),
    "choice": ({"choice": ["yes", "no", "a.b", "日本"]}, r"yes|no|a\.b|日本"),
    "one choice": ({"choice": "yes"}, "yes"),
    "choice that begins alike": ({"choice": ["a", "ab"]}, "ab?"),
    "grammar": ({"grammar": 'root ::= greeting " " [0-9]+ "!"\ngreeting ::= "Hi" | "Yo"'}, "(Hi|Yo) [0-9]+!"),
    "grammar that repeats": ({"grammar": 'root ::= ("ab" "c"?){2,3}'}, "(abc?){2,3}"),
    "structured regex": ({"structured_outputs": {"regex": "x+"}}, "x+"),
    "empty grammar": ({"grammar": "", "regex": "y+"}, "y+"),
    "no constraint beside one": ({"structured_outputs": {"regex": "z+", "json": None, "json_object": False}}, "z+"),
    "compact": (
        {"structured_outputs": {"json": {"type": "array", "items": {"const": 1}}, "disable_any_whitespace": True}},
        r"\[(1(, 1)*)?\]",
    ),
    "structured choice": ({"structured_outputs": {"choice": ["q"]}}, "q"),
}


@pytest.mark.parametrize("name", TAKEN)
def test_grammars_patterns_and_choices_are_obeyed(served: ServedModel, name: str) -> None:
    fields, pattern = TAKEN[name]
    new = new_constraint(served, **fields)
    for seed in range(5):
        text = drawn(served, new(), seed)
        assert text is not None
        assert re.fullmatch(pattern, text)


def test_json_mode_ends_with_the_value(served: ServedModel) -> None:
    constraint: Any = new_constraint(served, response_format={"type": "json_object"})()
    model = served.model
    for byte in b'{"a": 1}':
        [token] = model.tokenize(chr(byte), add_special=False)
        assert token in allowed(constraint, model.n_vocab)
        constraint.accept(token)
    left = {model.tokenizer.token_bytes(each) for each in allowed(constraint, model.n_vocab)}
    assert constraint.is_over or left - {b" ", b"\n"} == {
        model.tokenizer.token_bytes(each) for each in model.tokenizer.end_ids
    }


def test_those_who_compile_hold_up_only_each_other(
    serve: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve(FakeModel("x"))
    is_over, n_checked = threading.Event(), threading.Semaphore(0)

    def check(grammar: str) -> str:
        n_checked.release()
        is_over.wait(60)
        return "it is too hard"

    monkeypatch.setattr(CHECKER, "check", check)
    with ThreadPoolExecutor(8) as asking:
        bodies = [{"messages": MESSAGES, "regex": f"{index}+"} for index in range(8)]
        waiting = [asking.submit(client.post, "/v1/chat/completions", json=body) for body in bodies]
        for _ in range(4):
            assert n_checked.acquire(timeout=60)
        assert client.post("/v1/chat/completions", json={"messages": MESSAGES}).status_code == 200
        assert not any(each.done() for each in waiting)
        is_over.set()
        assert {each.result().status_code for each in waiting} == {400}


NODE = {
    "type": "object",
    "properties": {"v": {"enum": [1]}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
    "required": ["v", "next"],
    "additionalProperties": False,
}
LIST = {"type": "object", "properties": {"n": {"$ref": "#/$defs/node"}}, "required": ["n"], "$defs": {"node": NODE}}
SELF = {"type": "object", "properties": {"n": {"$ref": "#"}}, "additionalProperties": False}


@pytest.mark.parametrize("is_parallel", [False, True])
def test_references_in_the_parameters_of_a_tool_begin_at_the_parameters(served: ServedModel, is_parallel: bool) -> None:
    parameters = {"list": {**LIST, "additionalProperties": False}, "self": SELF}
    tools = [
        {"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in parameters.items()
    ]
    shape = ChatRequest.model_validate(
        {"messages": MESSAGES, "tools": tools, "tool_choice": "required", "parallel_tool_calls": is_parallel}
    )
    new = constraint_of(served, shape, tool_constraint(shape, tools))
    assert new is not None
    for seed in range(6):
        text = drawn(served, new(), seed)
        assert text is not None
        for call in json.loads(text) if is_parallel else [json.loads(text)]:
            jsonschema.validate(call["arguments"], parameters[call["name"]])
