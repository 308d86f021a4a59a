"""What the endpoints answer with 200, as the OpenAPI document tells it. Tests hold every answer to these; none is made
through them, as a token's event has no time for that.

A field with a default may be missing. No other fields come.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Told(BaseModel):
    """A part of an answer."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=(), strict=True)


# ---- what several have


class Usage(Told):
    """OpenAI's count of tokens."""

    class PromptDetails(Told):
        """Of the prompt."""

        cached_tokens: int

    class CompletionDetails(Told):
        """Of the answers; there where some of them is reasoning."""

        reasoning_tokens: int

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails = CompletionDetails(reasoning_tokens=0)


class TimingsTold(Told):
    """llama.cpp's timings, in milliseconds and tokens per second; queue_ms and ttft_ms are EMEL's."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float
    queue_ms: float
    ttft_ms: float


class FunctionCall(Told):
    """The call of a function; the arguments are JSON."""

    name: str
    arguments: str


class ToolCallTold(Told):
    """A call in a message."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class OtherToken(Told):
    """A token that could have come."""

    id: int
    token: str
    bytes: list[int]
    logprob: float


class TokenTold(OtherToken):
    """A token that came."""

    top_logprobs: list[OtherToken]


# ---- /v1/chat/completions


class ChatMessage(Told):
    """The answer to a chat."""

    role: Literal["assistant"]
    content: str | None
    reasoning_content: str = ""
    tool_calls: list[ToolCallTold] = Field(default_factory=list)


class ChatLogprobs(Told):
    """Of each token of a message."""

    content: list[TokenTold]
    refusal: None


class ChatChoice(Told):
    """One of n answers."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls", "cancelled"]
    transcript: dict[str, Any] = Field(default_factory=dict, description="for `emel verify`, of one of several")


class ChatCompletion(Told):
    """POST /v1/chat/completions."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: Usage
    timings: TimingsTold
    generation_settings: dict[str, Any]
    transcript: dict[str, Any] = Field(default_factory=dict, description="for `emel verify`")


# ---- /v1/completions


class CompletionLogprobs(Told):
    """Of each token of a text."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(Told):
    """One of n answers to one of the prompts."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length", "cancelled"]
    transcript: dict[str, Any] = Field(default_factory=dict, description="for `emel verify`, of one of several")


class TextCompletion(Told):
    """POST /v1/completions."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: Usage
    timings: TimingsTold
    generation_settings: dict[str, Any]
    transcript: dict[str, Any] = Field(default_factory=dict, description="for `emel verify`")


# ---- /completion


class NativeCompletion(Told):
    """POST /completion."""

    index: Literal[0]
    content: str
    tokens: list[int]
    stop: Literal[True]
    id_slot: int
    tokens_predicted: int
    tokens_evaluated: int
    completion_probabilities: list[TokenTold] = Field(default_factory=list)
    model: str
    system_fingerprint: str
    prompt: str
    generation_settings: dict[str, Any]
    truncated: Literal[False]
    has_new_line: bool
    stop_type: Literal["none", "eos", "limit", "word"]
    stopping_word: str
    tokens_cached: int
    timings: TimingsTold
    transcript: dict[str, Any] = Field(default_factory=dict, description="for `emel verify`")


# ---- /v1/responses


class OutputText(Told):
    """The text of a message."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[Any]


class MessageItem(Told):
    """A message."""

    id: str
    type: Literal["message"]
    status: Literal["completed"]
    role: Literal["assistant"]
    content: list[OutputText]


class ReasoningText(Told):
    """What the model wrote to itself."""

    type: Literal["reasoning_text"]
    text: str


class ReasoningItem(Told):
    """Reasoning."""

    id: str
    type: Literal["reasoning"]
    summary: list[Any]
    content: list[ReasoningText]
    status: Literal["completed"]


class CallItem(Told):
    """A call of a function."""

    id: str
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    status: Literal["completed", "incomplete"]


class IncompleteDetails(Told):
    """Why a response is not whole."""

    reason: Literal["max_output_tokens"]


class ResponseUsage(Told):
    """The count of tokens of a response."""

    class InputDetails(Told):
        """Of the prompt."""

        cached_tokens: int

    class OutputDetails(Told):
        """Of the answer."""

        reasoning_tokens: int

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class ResponseTold(Told):
    """POST /v1/responses."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["completed", "incomplete"]
    error: None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: list[MessageItem | ReasoningItem | CallItem]
    parallel_tool_calls: bool
    previous_response_id: None
    reasoning: dict[str, Any]
    store: bool
    temperature: float | None
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_p: float | None
    truncation: Literal["disabled"]
    usage: ResponseUsage
    user: None
    system_fingerprint: str


# ---- /v1/messages


class TextBlock(Told):
    """Text."""

    type: Literal["text"]
    text: str


class ThinkingBlock(Told):
    """What the model wrote to itself."""

    type: Literal["thinking"]
    thinking: str
    signature: str


class ToolUseBlock(Told):
    """A call of a tool."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class MessageUsage(Told):
    """Anthropic's count of tokens."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int


class MessageTold(Told):
    """POST /v1/messages."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[TextBlock | ThinkingBlock | ToolUseBlock]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]
    stop_sequence: str | None
    usage: MessageUsage


class InputTokens(Told):
    """POST /v1/responses/input_tokens."""

    object: Literal["response.input_tokens"]
    input_tokens: int


class TokenCount(Told):
    """POST /v1/messages/count_tokens."""

    input_tokens: int


# ---- /v1/embeddings


class EmbeddingTold(Told):
    """The embedding of a text."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingUsage(Told):
    """The count of tokens of texts."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(Told):
    """POST /v1/embeddings."""

    object: Literal["list"]
    data: list[EmbeddingTold]
    model: str
    usage: EmbeddingUsage
