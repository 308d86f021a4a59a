"""The generator: one request from its prompt to exactly one terminal state.

1. Begin opens a sequence; the prompt is computed in chunks, one per Advance.
2. The last chunk's logits give the first token; every further Advance computes one token and chooses the next.
3. A chosen token ends the request (an end token, a stop string, the limit of tokens or of the context) or is shown.
4. Cancel ends it from any state that is not terminal; also from one between two steps, where an interrupt out of an
   effect leaves it. Whatever ends it, the sequence is closed once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from emel.graph.batch import Outputs
from emel.sm import Machine, Row
from emel.text.errors import GenerationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emel.graph.batch import Batch
    from emel.memory.kv import KvCache
    from emel.text.renderer import Renderer
    from emel.text.sampler import Sampler
    from emel.text.tokenizer import Tokenizer


class State(Enum):
    """Where a request stands."""

    QUEUED = "queued"
    PREFILLING = "prefilling"
    CHUNK_DONE = "chunk_done"
    PROMPT_DONE = "prompt_done"
    COMPUTED = "computed"
    CHOSEN = "chosen"
    SHOWN = "shown"
    DECODING = "decoding"
    STOPPED = "stopped"
    LENGTH = "length"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Begin:
    """Admit the request."""


@dataclass(frozen=True, slots=True)
class Advance:
    """Take one step: a chunk of the prompt, or a token."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Nobody wants the rest."""


class Compute(Protocol):
    """Runs a batch (emel.graph.reservation.ReservedGraph)."""

    def compute(self, batch: Batch, /) -> None:
        """Raises what went wrong."""


@dataclass(slots=True)
class GeneratorContext:
    """The request, what it computes with, and what has come of it."""

    prompt_ids: Sequence[int]
    max_tokens: int | None
    sampler: Sampler
    renderer: Renderer
    tokenizer: Tokenizer
    graph: Compute
    batch: Batch
    cache: KvCache
    chunk: int  # tokens of a prefill step
    sequence: int | None = None
    n_computed: int = 0  # prompt tokens whose keys and values are in the cache
    token_ids: list[int] = field(default_factory=list)
    new_text: str = ""  # of the last step
    stop: str | None = None  # what ended the text, when a stop string did
    error: Exception | None = None


# ---- guards


def fits_context(context: GeneratorContext, _event: Begin) -> bool:
    """The prompt has tokens, and the context has room for them."""
    return 1 <= len(context.prompt_ids) <= context.cache.n_ctx and context.cache.can_open()


def is_last_chunk(context: GeneratorContext, _event: Advance) -> bool:
    """The rest of the prompt fits one step."""
    return len(context.prompt_ids) - context.n_computed <= context.chunk


def has_failed(context: GeneratorContext, _event: object) -> bool:
    """The last step left an error."""
    return context.error is not None


def wants_nothing(context: GeneratorContext, _event: object) -> bool:
    """Only the prompt was to be computed."""
    return context.max_tokens == 0


def is_end_token(context: GeneratorContext, _event: object) -> bool:
    """The model says it is done."""
    return context.token_ids[-1] in context.tokenizer.end_ids


def met_stop_string(context: GeneratorContext, _event: object) -> bool:
    """The text ran into a stop string."""
    return context.renderer.stop is not None


def is_at_limit(context: GeneratorContext, _event: object) -> bool:
    """No more tokens are wanted, or the context is full."""
    n_tokens = len(context.token_ids)
    return n_tokens == context.max_tokens or len(context.prompt_ids) + n_tokens > context.cache.n_ctx


# ---- effects


def open_sequence(context: GeneratorContext, _event: Begin) -> None:
    """Takes a row of the block table."""
    context.sequence = context.cache.open()


def refuse(context: GeneratorContext, _event: Begin) -> None:
    """Says why the request cannot start."""
    n, n_ctx = len(context.prompt_ids), context.cache.n_ctx
    if n == 0:
        message = "the prompt has no tokens: give at least one character"
    elif n > n_ctx:
        message = f"the prompt has {n} tokens, the context holds {n_ctx}: shorten it, or load with a larger n_ctx"
    else:
        message = f"all {context.cache.max_sequences} sequences are in use: finish or close another request first"
    context.error = GenerationError(message)


def compute_chunk(context: GeneratorContext, _event: Advance) -> None:
    """A chunk of the prompt that is not its last: no logits."""
    _compute_prompt(context, context.chunk, Outputs.NONE)


def compute_last_chunk(context: GeneratorContext, _event: Advance) -> None:
    """The end of the prompt, with the logits of its last token."""
    _compute_prompt(context, len(context.prompt_ids) - context.n_computed, Outputs.LAST)


def compute_token(context: GeneratorContext, _event: Advance) -> None:
    """The token chosen last, with its logits."""
    assert context.sequence is not None
    context.new_text = ""
    batch = context.batch
    batch.clear()
    try:
        position = context.cache.reserve(context.sequence, 1)
        batch.add_token(context.token_ids[-1], position, context.sequence)
        context.graph.compute(batch)
        check_output(batch, 0)
    except (ValueError, RuntimeError, MemoryError) as error:
        context.error = error


def choose(context: GeneratorContext, _event: object) -> None:
    """The next token, from the logits of the only output."""
    position = len(context.prompt_ids) + len(context.token_ids)
    try:
        context.token_ids.append(context.sampler.choose(context.batch, 0, position))
    except RuntimeError as error:
        context.error = error


def show(context: GeneratorContext, _event: object) -> None:
    """The token's text, as far as it is certain; control tokens have none."""
    token = context.token_ids[-1]
    if not context.tokenizer.is_control(token):
        context.new_text = context.renderer.feed(context.tokenizer.token_bytes(token))


def finish(context: GeneratorContext, event: object) -> None:
    """Shows what was held back and gives the sequence back."""
    shown = context.new_text + context.renderer.flush()
    context.stop = context.renderer.stop
    close(context, event)
    context.new_text = shown


def close(context: GeneratorContext, _event: object) -> None:
    """Gives the sequence back; nothing more is shown."""
    context.new_text = ""
    if context.sequence is not None:
        context.cache.close_sequence(context.sequence)
        context.sequence = None


def _compute_prompt(context: GeneratorContext, n_tokens: int, outputs: Outputs) -> None:
    assert context.sequence is not None
    batch = context.batch
    batch.clear()
    try:
        position = context.cache.reserve(context.sequence, n_tokens)
        batch.add(context.prompt_ids[position : position + n_tokens], position, context.sequence, outputs=outputs)
        context.graph.compute(batch)
        if outputs is not Outputs.NONE:
            check_output(batch, 0)
    except (ValueError, RuntimeError, MemoryError) as error:
        context.error = error
    context.n_computed += n_tokens


def check_output(batch: Batch, output: int) -> None:
    """GenerationError naming the first layer when the logits of an output are not finite."""
    if batch.argmax[output] >= 0:
        return
    bad = [layer for layer in batch.bad_layer[: batch.n_tokens] if layer >= 0]
    where = f"a value first stopped being finite in layer {min(bad)}" if bad else "the output matrix made them so"
    raise GenerationError(f"the logits are not finite (NaN or infinity): {where}; the model file is likely damaged")


class GeneratorMachine(Machine[State, GeneratorContext]):
    """See the file's header. Results: context.token_ids, new_text after every step, error."""

    INITIAL = State.QUEUED
    TERMINAL = frozenset({State.STOPPED, State.LENGTH, State.CANCELLED, State.FAILED})
    TABLE = (
        #   source             event    guard            effect              destination
        Row(State.QUEUED,      Begin,   fits_context,    open_sequence,      State.PREFILLING),
        Row(State.QUEUED,      Begin,   None,            refuse,             State.FAILED),
        Row(State.QUEUED,      Cancel,  None,            close,              State.CANCELLED),
        Row(State.PREFILLING,  Advance, is_last_chunk,   compute_last_chunk, State.PROMPT_DONE),
        Row(State.PREFILLING,  Advance, None,            compute_chunk,      State.CHUNK_DONE),
        Row(State.PREFILLING,  Cancel,  None,            close,              State.CANCELLED),
        Row(State.CHUNK_DONE,  None,    has_failed,      close,              State.FAILED),
        Row(State.CHUNK_DONE,  None,    None,            None,               State.PREFILLING),
        Row(State.CHUNK_DONE,  Cancel,  None,            close,              State.CANCELLED),
        Row(State.PROMPT_DONE, None,    has_failed,      close,              State.FAILED),
        Row(State.PROMPT_DONE, None,    wants_nothing,   finish,             State.LENGTH),
        Row(State.PROMPT_DONE, None,    None,            choose,             State.CHOSEN),
        Row(State.PROMPT_DONE, Cancel,  None,            close,              State.CANCELLED),
        Row(State.COMPUTED,    None,    has_failed,      close,              State.FAILED),
        Row(State.COMPUTED,    None,    None,            choose,             State.CHOSEN),
        Row(State.COMPUTED,    Cancel,  None,            close,              State.CANCELLED),
        Row(State.CHOSEN,      None,    has_failed,      close,              State.FAILED),
        Row(State.CHOSEN,      None,    is_end_token,    finish,             State.STOPPED),
        Row(State.CHOSEN,      None,    None,            show,               State.SHOWN),
        Row(State.CHOSEN,      Cancel,  None,            close,              State.CANCELLED),
        Row(State.SHOWN,       None,    met_stop_string, finish,             State.STOPPED),
        Row(State.SHOWN,       None,    is_at_limit,     finish,             State.LENGTH),
        Row(State.SHOWN,       None,    None,            None,               State.DECODING),
        Row(State.SHOWN,       Cancel,  None,            close,              State.CANCELLED),
        Row(State.DECODING,    Advance, None,            compute_token,      State.COMPUTED),
        Row(State.DECODING,    Cancel,  None,            close,              State.CANCELLED),
    )  # fmt: skip
