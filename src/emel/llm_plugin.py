"""A plugin for the `llm` command (https://llm.datasette.io): its models are those that EMEL runs.

    llm -m emel/smollm2 "Say hello"
    llm -m emel/smollm2 --schema "name, age int" "Invent a person"   # needs emel[constraints]
    EMEL_LLM_MODELS="small=path/to/model.gguf,hf:owner/repo:Q4_K_M" llm -m emel/small "Say hello"

`llm` imports this module for every command, so a model is loaded when it is first asked, and kept. An object has the
properties that its schema names and no others, unless that says what these may be.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import llm
from pydantic import Field

from emel.cli import terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from emel.engine.model import Model
    from emel.engine.results import Completion
    from emel.text.constraint import Constraint

MODELS = "EMEL_LLM_MODELS"
"""Environment variable: [NAME=]MODEL, several with commas between; what `emel run -m` takes."""
DEFAULT = "smollm2"


@llm.hookimpl
def register_models(register: Callable[[llm.Model], None]) -> None:
    """llm's hook: one model for each that is named in the environment, or the built-in one."""
    found: dict[str, str] = {}
    for word in list(filter(None, map(str.strip, os.environ.get(MODELS, "").split(",")))) or [DEFAULT]:
        name, _, path = map(str.strip, word.rpartition("="))
        name = name or path.removesuffix(".gguf").rpartition("/")[2]
        if not path:
            _pass_over(word, "no model in it")
        elif name in found:
            _pass_over(word, f"a second model called {name!r}")
        else:
            found[name] = path
    for name, path in found.items():
        register(EmelModel(name, path))


def _pass_over(word: str, fault: str) -> None:
    """Not an error: llm's other models have nothing to do with it."""
    terminal.say_error(
        f"{MODELS}: {word!r} has {fault} and is passed over", "write [NAME=]MODEL, each with its own name"
    )


class EmelOptions(llm.Options):
    """`-o NAME VALUE`; what is wrong with a value is said by the model."""

    max_tokens: int | None = Field(None, description="tokens of the answer at most")
    temperature: float | None = Field(None, description="0: always the likeliest token")
    top_p: float | None = Field(None, description="draw among the likeliest tokens that have this probability")
    top_k: int | None = Field(None, description="draw among so many of the likeliest tokens")
    min_p: float | None = Field(None, description="draw among tokens with this share of the likeliest's probability")
    seed: int | None = Field(None, description="the same seed gives the same answer")


class EmelModel(llm.Model):
    """A model for `llm`."""

    can_stream = True
    supports_schema = True
    Options = EmelOptions

    def __init__(self, name: str, path: str) -> None:
        self.model_id = f"emel/{name}"
        self._path = path
        self._model: Model | None = None

    def execute(
        self, prompt: llm.Prompt, stream: bool, response: llm.Response, conversation: llm.Conversation | None
    ) -> Iterator[str]:
        """The answer, in parts if it is to be streamed; a conversation computes only what is new in it."""
        import emel

        if self._model is None:
            self._model = emel.load(self._path)
        options = {name: value for name, value in prompt.options if value is not None}
        if prompt.schema is not None:
            options["new_constraint"] = _constraint(self._model, prompt.schema)
        parts = self._model.chat(_messages(prompt, conversation), stream=True, **options)
        with parts:
            if stream:
                yield from (part.text for part in parts)
            else:
                yield "".join(part.text for part in parts)
        completion = parts.completion
        assert completion is not None
        response.set_usage(input=completion.n_prompt_tokens, output=len(completion.token_ids))
        response.response_json = {"finish_reason": completion.finish_reason}
        if completion.finish_reason == "length":
            _tell_cut(completion, options.get("max_tokens"), stream, prompt.schema is not None)


def _constraint(model: Model, schema: Any) -> Callable[[], Constraint]:
    from emel.engine.closed_schemas import closed
    from emel.engine.constraints import constraint_maker
    from emel.engine.grammars import Wanted

    wanted = Wanted("schema", "json_schema", closed(schema), is_compact=True)
    return constraint_maker(wanted, model.tokenizer, model.n_vocab)


def _tell_cut(completion: Completion, max_tokens: int | None, stream: bool, is_json: bool) -> None:
    """Says on stderr that an answer was cut. llm.ModelError for JSON, which is none then."""
    n_tokens = len(completion.token_ids)
    limit = "-o max_tokens" if n_tokens == max_tokens else "the end of the context"
    what = f"the answer was cut after {n_tokens} token{'s' * (n_tokens != 1)} by {limit}"
    if is_json and not _is_json(completion.text):
        raise llm.ModelError(f"{what} and is no JSON: bound the schema (maxLength, maximum, maxItems)")
    terminal.say_note("\n" * stream + f"[{what}]")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _messages(prompt: llm.Prompt, conversation: llm.Conversation | None) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": prompt.system}] if prompt.system else []
    for past in conversation.responses if conversation else ():
        messages.append({"role": "user", "content": past.prompt.prompt})
        messages.append({"role": "assistant", "content": past.text_or_raise()})
    return [*messages, {"role": "user", "content": prompt.prompt}]
