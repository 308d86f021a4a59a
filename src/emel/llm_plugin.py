"""A plugin for the `llm` command (https://llm.datasette.io): its models are those that EMEL runs.

    llm -m emel/smollm2 "Say hello"
    llm -m emel/smollm2 --schema "name, age int" "Invent a person"   # needs emel[constraints]
    EMEL_LLM_MODELS="small=path/to/model.gguf,hf:owner/repo:Q4_K_M" llm -m emel/small "Say hello"

`llm` imports this module for every command, so a model is loaded when it is first asked, and kept.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import llm
from pydantic import Field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from emel.engine.model import Model

MODELS = "EMEL_LLM_MODELS"
"""Environment variable: [NAME=]MODEL, several with commas between; what `emel run -m` takes."""
DEFAULT = "smollm2"


@llm.hookimpl
def register_models(register: Callable[[llm.Model], None]) -> None:
    """llm's hook: one model for each that is named in the environment, or the built-in one."""
    for word in filter(None, map(str.strip, os.environ.get(MODELS, DEFAULT).split(","))):
        name, _, path = word.rpartition("=")
        register(EmelModel(name or path.removesuffix(".gguf").rpartition("/")[2], path))


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
            options["json_schema"] = prompt.schema
        parts = self._model.chat(_messages(prompt, conversation), stream=True, **options)
        with parts:
            if stream:
                yield from (part.text for part in parts)
            else:
                yield "".join(part.text for part in parts)
        completion = parts.completion
        assert completion is not None
        response.set_usage(input=completion.n_prompt_tokens, output=len(completion.token_ids))


def _messages(prompt: llm.Prompt, conversation: llm.Conversation | None) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": prompt.system}] if prompt.system else []
    for past in conversation.responses if conversation else ():
        messages.append({"role": "user", "content": past.prompt.prompt})
        messages.append({"role": "assistant", "content": past.text_or_raise()})
    return [*messages, {"role": "user", "content": prompt.prompt}]
