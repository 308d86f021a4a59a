"""What is answered with 200 of models, texts and the server itself: more of emel.server.answer_shapes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from emel.server.answer_shapes import Told


class ModelMeta(Told):
    """What a loaded model is; size in bytes."""

    vocab_type: int
    n_vocab: int
    n_ctx: int
    n_ctx_train: int
    n_embd: int
    n_params: int
    size: int


class ModelCard(Told):
    """GET /v1/models/{name}."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    status: Literal["unloaded", "loading", "ready", "failed"]
    aliases: list[str]
    meta: ModelMeta | None = None


class ModelList(Told):
    """GET /v1/models."""

    object: Literal["list"]
    data: list[ModelCard]


class ModelChanged(Told):
    """POST /models/load and /models/unload."""

    success: Literal[True]
    model: ModelCard


class TokenPiece(Told):
    """A token and its text, or its bytes where they are no text."""

    id: int
    piece: str | list[int]


class TokenList(Told):
    """POST /tokenize."""

    tokens: list[int] | list[TokenPiece]


class TextTold(Told):
    """POST /detokenize."""

    content: str


class PromptTold(Told):
    """POST /apply-template."""

    prompt: str


class Health(Told):
    """GET /health."""

    status: Literal["ok"]


class Defaults(Told):
    """What a request has that says nothing of it."""

    n_ctx: int
    params: dict[str, Any]


class Props(Told):
    """GET /props."""

    default_generation_settings: Defaults
    total_slots: int
    model_alias: str
    model_path: str
    modalities: dict[str, bool]
    chat_template: str | None
    bos_token: str
    eos_token: str
    build_info: str
    system_fingerprint: str
    isa: str
    n_threads: int


class NextToken(Told):
    """How far an answer is."""

    has_next_token: bool
    n_decoded: int
    n_remain: int


class Slot(Told):
    """A lane, and the request that has it."""

    id: int
    n_ctx: int
    is_processing: bool
    id_task: int = -1
    state: Literal["queued", "prefilling", "decoding"] | None = None
    n_prompt_tokens: int = 0
    n_prompt_tokens_processed: int = 0
    next_token: list[NextToken] = Field(default_factory=list)


class MachineRow(Told):
    """A row of a state machine's table."""

    source: str
    event: str | None
    guard: str | None
    effect: str | None
    destination: str


class MachineTold(Told):
    """The table of a state machine."""

    name: str
    module: str
    summary: str
    initial: str
    terminal: list[str]
    states: list[str]
    rows: list[MachineRow]
