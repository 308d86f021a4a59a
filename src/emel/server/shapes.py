"""The requests of OpenAI's endpoints (https://platform.openai.com/docs/api-reference) and what others added to them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from emel.engine.arguments import checked_template_variables
from emel.errors import RequestError
from emel.server.errors import invalid
from emel.server.sampling import SamplingShape
from emel.server.shape import Shape

MOST_PING_SECONDS = 1_000_000


class StreamOptions(BaseModel):
    """What a stream tells besides the answer."""

    model_config = ConfigDict(extra="allow")
    include_usage: bool | None = None


class ResponseFormat(BaseModel):
    """The form an answer must have."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())
    type: str
    json_schema: dict[str, Any] | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")


class ConstrainedShape(SamplingShape):
    """A generating request whose answer may have to obey something; at most one of these."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    json_schema: dict[str, Any] | None = None
    grammar: str | None = Field(None, description="GBNF, as llama.cpp has it")
    regex: str | None = Field(None, validation_alias="regex", description="a regular expression for the whole answer")
    choice: str | list[str] | None = Field(None, min_length=1, description="one of these texts")
    structured_outputs: dict[str, Any] | None = Field(None, description="vLLM's: json, regex, choice or grammar")
    sse_ping_interval: int | None = Field(
        None, ge=-1, le=MOST_PING_SECONDS, description="seconds of silence of a stream before a comment; -1: none comes"
    )
    return_progress: bool | None = Field(None, description="a stream tells how far the prompt is until it was read")
    transcript: bool | None = Field(None, description="adds a transcript of each answer that `emel verify` can replay")

    @property
    def is_constrained(self) -> bool:
        """Whether something has to be compiled for it."""
        fields = (
            self.response_format,
            self.json_schema,
            self.grammar,
            self.regex,
            self.choice,
            self.structured_outputs,
        )
        return any(each is not None for each in fields)

    def sampling(self) -> dict[str, Any]:
        """Keywords for Model.submit."""
        given: dict[str, Any] = super().sampling()
        return {**given, "digests": True} if self.transcript else given

    @property
    def ping_seconds(self) -> float | None:
        """Silence of a stream before a comment; None: as the server has it."""
        return MOST_PING_SECONDS if self.sse_ping_interval in (-1, 0) else self.sse_ping_interval

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with a chunk of usage."""
        return bool(self.stream_options and self.stream_options.include_usage)


def refuse_transcript(shape: Shape) -> None:
    """ApiError 400 where another protocol's answer has no place for a transcript that was asked for."""
    if (shape.model_extra or {}).get("transcript"):
        raise invalid("transcript is not supported here: ask /v1/chat/completions or /v1/completions", "transcript")


class ChatRequest(ConstrainedShape):
    """POST /v1/chat/completions."""

    messages: list[dict[str, Any]] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=-1)
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    reasoning_format: Literal["auto", "none", "deepseek"] | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None

    @property
    def is_constrained(self) -> bool:
        """Whether something has to be compiled for it."""
        return super().is_constrained or self.tool_choice not in (None, "auto", "none")

    def sampling(self) -> dict[str, Any]:
        """Keywords for Model.submit."""
        given = super().sampling()
        if self.max_completion_tokens is not None and self.max_completion_tokens >= 0:
            given["max_tokens"] = self.max_completion_tokens
        if self.logprobs:
            given["logprobs"] = self.top_logprobs or 0
        return given

    def template_variables(self) -> dict[str, Any]:
        """Variables of the chat template that the request sets."""
        effort = {} if self.reasoning_effort is None else {"reasoning_effort": self.reasoning_effort}
        try:
            return {**effort, **checked_template_variables(self.chat_template_kwargs)}
        except RequestError as error:
            raise invalid(str(error), "chat_template_kwargs") from None


class CompletionRequest(ConstrainedShape):
    """POST /v1/completions."""

    prompt: str | list[StrictInt] | list[str] | list[list[StrictInt]]
    suffix: str | None = None
    echo: bool | None = None
    best_of: int | None = None
    logprobs: int | None = Field(None, ge=0, le=20)

    @property
    def has_many(self) -> bool:
        """Whether it is a list of prompts."""
        return isinstance(self.prompt, list) and bool(self.prompt) and isinstance(self.prompt[0], str | list)

    def sampling(self) -> dict[str, Any]:
        """Keywords for Model.submit; 16 tokens unless asked otherwise, as OpenAI has it."""
        given = {"max_tokens": 16, **super().sampling()}
        if self.max_tokens == -1:
            del given["max_tokens"]
        if self.logprobs is not None:
            given["logprobs"] = self.logprobs
        return given


class EmbeddingsRequest(Shape):
    """POST /v1/embeddings."""

    model: str | None = None
    input: str | list[str] | list[StrictInt] | list[list[StrictInt]]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = Field(None, ge=1)
    pooling: Literal["mean", "cls", "last"] | None = Field(None, description="in place of the model's own")


class TokenizeRequest(Shape):
    """POST /tokenize."""

    model: str | None = None
    content: str
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeRequest(Shape):
    """POST /detokenize."""

    model: str | None = None
    tokens: list[StrictInt]


class ModelName(Shape):
    """POST /models/load and /models/unload."""

    model: str
