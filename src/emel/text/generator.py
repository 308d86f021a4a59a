"""The generator: one request from its prompt to exactly one terminal state, driven by the wave it takes part in.

1. `ids` are the prompt and the chosen tokens; the memory has the first `n_computed` of them, and a step computes more.
   The logits of the last one give the next, so a chunk of a prompt and a token of an answer are the same thing.
2. A chosen token ends the request (an end token, a stop string, the limit of tokens or of the context) or is shown.
3. Preempt gives the sequence back and keeps the ids: when admitted again the request computes them anew, and goes on
   with the same bits.
4. Join opens the sequence of another completion of the same prompt as a fork, with the logits computed already.
5. A step may compute a draft behind the last id: a guess of what comes. Each token chosen as guessed finds its logits
   in the next row; the first that is not, or the end, has the memory take back what nobody chose.
6. Effects raise what goes wrong; whoever dispatched hands it back as Fail, which has a row in every state that is not
   terminal. So has Cancel. Whatever ends a request, its sequence is closed once.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Any

from emel.kernel.sizes import KV_BLOCK
from emel.lazy_dataclasses import dataclass
from emel.sm import Machine, Row
from emel.text.errors import NotFiniteError

if TYPE_CHECKING:
    from collections.abc import Callable

    from emel.graph.batch import Batch
    from emel.memory.sequence_memory import SequenceMemory
    from emel.text.renderer import Renderer
    from emel.text.sampler import Sampler
    from emel.text.speculation import Speculator
    from emel.text.tokenizer import Tokenizer


class State(Enum):
    """Where a request stands."""

    QUEUED = "queued"
    PREFILLING = "prefilling"
    COMPUTED = "computed"
    CHOSEN = "chosen"
    SHOWN = "shown"
    DECODING = "decoding"
    STOPPED = "stopped"
    LENGTH = "length"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Admit:
    """Open a sequence, on what the memory has of these ids already."""


@dataclass(frozen=True, slots=True)
class Join:
    """Fork `leader`, whose whole prompt, the same as ours, was computed by the last step."""

    leader: GeneratorContext


@dataclass(frozen=True, slots=True)
class Computed:
    """The last step computed the next `n_step` ids; `output` is the row of the last one's logits, if it has any."""


@dataclass(frozen=True, slots=True)
class Preempt:
    """Others need the memory."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Nobody wants the rest."""


@dataclass(frozen=True, slots=True)
class Fail:
    """It cannot go on."""

    error: Exception


@dataclass(slots=True)
class GeneratorContext:
    """The request, what it computes with, and what has come of it."""

    ids: list[int]
    n_prompt: int
    max_tokens: int | None
    sampler: Sampler
    renderer: Renderer
    tokenizer: Tokenizer
    end_ids: frozenset[int]
    batch: Batch
    memory: SequenceMemory
    reuses_prefix: bool = True
    wants_logprobs: bool = False
    digest: Callable[[memoryview], str] | None = None  # of logits, for whoever wants one for each token
    shown_controls: frozenset[int] = frozenset()  # control tokens that have a text for the reader
    speculator: Speculator | None = None  # makes the drafts, if there are to be any
    sequence: int | None = None
    n_computed: int = 0
    n_published: int = 0  # full blocks that others can find
    n_cached: int = 0  # prompt tokens that the first admission found computed
    n_admissions: int = 0
    n_step: int = 0  # ids of the step that runs
    output: int = -1  # row of its logits
    draft: list[int] = field(default_factory=list)  # tokens of the step behind those of `ids`
    n_matched: int = 0  # of them: chosen too
    n_draft_tokens: int = 0  # of all steps
    n_accepted_tokens: int = 0  # of them: chosen too
    logprobs: list[Any] = field(default_factory=list)  # one for each chosen token, if wanted
    digests: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    n_shown: int = 0  # pieces of `text` that were handed out
    stop: str | None = None  # what ended the text, when a stop string did
    error: Exception | None = None
    is_plain: bool = False  # the likeliest token is taken, its text is shown, and nothing else is asked of it
    n_end: int = 0  # ids at which it is over

    def __post_init__(self) -> None:
        wants_more = self.wants_logprobs or self.digest is not None or self.renderer.has_stops
        self.is_plain = self.sampler.is_argmax and not wants_more
        n_ctx = self.memory.n_ctx
        self.n_end = n_ctx if self.max_tokens is None else min(self.n_prompt + self.max_tokens, n_ctx)

    @property
    def n_tokens(self) -> int:
        """Tokens chosen so far."""
        return len(self.ids) - self.n_prompt


# ---- guards


def has_more_to_read(context: GeneratorContext, _event: Computed) -> bool:
    """Ids are left that no step has computed."""
    return context.n_computed + context.n_step < len(context.ids)


def is_plain_token(context: GeneratorContext, _event: Computed) -> bool:
    """The likeliest token is taken and ends nothing: all that there is to do is to show it. As with most tokens."""
    token = context.batch.argmax[context.output]
    return (
        context.is_plain
        and not context.draft
        and len(context.ids) + 1 < context.n_end
        and token >= 0
        and token not in context.end_ids
    )


def is_not_finite(context: GeneratorContext, _event: object) -> bool:
    """The logits have a NaN or an infinity."""
    return context.batch.argmax[context.output] < 0


def wants_nothing(context: GeneratorContext, _event: object) -> bool:
    """Only the prompt was to be computed, or it fills the context."""
    return context.max_tokens == 0 or len(context.ids) >= context.memory.n_ctx


def is_end_token(context: GeneratorContext, _event: object) -> bool:
    """The model says it is done, or a token came that was to end the answer."""
    return context.ids[-1] in context.end_ids


def met_stop_string(context: GeneratorContext, _event: object) -> bool:
    """The text ran into a stop string."""
    return context.renderer.stop is not None


def is_at_limit(context: GeneratorContext, _event: object) -> bool:
    """No more tokens are wanted, or the context is full."""
    return len(context.ids) >= context.n_end


def is_as_drafted(context: GeneratorContext, _event: object) -> bool:
    """The token was guessed, so that the next one's logits are there."""
    draft, n = context.draft, context.n_matched
    return n < len(draft) and draft[n] == context.ids[-1]


def has_draft(context: GeneratorContext, _event: object) -> bool:
    """The step had guesses; what is left of them was not chosen."""
    return bool(context.draft)


# ---- effects


def open_sequence(context: GeneratorContext, _event: Admit) -> None:
    """Takes a row, with as much of the ids as the memory has."""
    sequence, n_found = context.memory.open_with_prefix(context.ids, reuse=context.reuses_prefix)
    context.sequence, context.n_computed = sequence, n_found
    context.n_published = n_found // KV_BLOCK
    if not context.n_admissions:
        context.n_cached = n_found
    context.n_admissions += 1


def fork_leader(context: GeneratorContext, event: Join) -> None:
    """Takes a row that shares the leader's blocks, and the leader's logits."""
    leader = event.leader
    assert leader.sequence is not None
    context.sequence = context.memory.fork(leader.sequence)
    context.n_computed = context.n_cached = len(context.ids)
    context.n_published = leader.n_published
    context.output, context.n_step = leader.output, leader.n_step
    context.n_admissions += 1


def take_computed(context: GeneratorContext, _event: Computed) -> None:
    """Counts the step's ids, and lets others find the blocks that are full."""
    context.n_matched = 0
    _add_computed(context, context.n_step)


def take_plain_token(context: GeneratorContext, event: Computed) -> None:
    """Counts the step's id, and takes and shows the likeliest token behind it."""
    _add_computed(context, 1)
    context.ids.append(context.batch.argmax[context.output])
    show(context, event)


def take_next_row(context: GeneratorContext, _event: object) -> None:
    """Goes on with the guess that was right: it is computed, its logits are in the next row."""
    context.n_matched += 1
    context.output += 1
    _add_computed(context, 1)


def _add_computed(context: GeneratorContext, n_more: int) -> None:
    n = context.n_computed = context.n_computed + n_more
    if n // KV_BLOCK > context.n_published:
        assert context.sequence is not None
        context.n_published = n // KV_BLOCK
        context.memory.publish(context.sequence, context.ids[:n])


def choose(context: GeneratorContext, _event: object) -> None:
    """The next token, from the logits of the last one."""
    batch, output, sampler = context.batch, context.output, context.sampler
    token = sampler.choose(batch, output, len(context.ids))
    if context.wants_logprobs:
        context.logprobs.append(sampler.logprobs(batch, output, token))
    if context.digest is not None:
        context.digests.append(context.digest(batch.logits(output)))
    context.ids.append(token)
    sampler.accept(token)


def show(context: GeneratorContext, _event: object) -> None:
    """The token's text, as far as it is certain; control tokens have none."""
    token, tokenizer = context.ids[-1], context.tokenizer
    if not tokenizer.is_control(token) or token in context.shown_controls:
        text = context.renderer.feed(tokenizer.token_bytes(token))
        if text:
            context.text.append(text)


def take_back(context: GeneratorContext, _event: object) -> None:
    """Has the memory forget the guesses that were wrong."""
    assert context.sequence is not None
    context.draft = []
    n_wrong = context.memory.n_tokens(context.sequence) - context.n_computed
    if n_wrong:
        context.memory.rollback(context.sequence, n_wrong)


def finish(context: GeneratorContext, event: object) -> None:
    """Shows what was held back and gives the sequence back."""
    rest = context.renderer.flush()
    if rest:
        context.text.append(rest)
    context.stop = context.renderer.stop
    close(context, event)


def close(context: GeneratorContext, _event: object) -> None:
    """Gives the sequence back; nothing more is shown."""
    if context.sequence is not None:
        sequence, context.sequence = context.sequence, None
        if context.speculator is not None:
            context.speculator.close()
        context.memory.close_sequence(sequence)


def give_back(context: GeneratorContext, event: Preempt) -> None:
    """Gives the sequence back, to compute it anew later."""
    close(context, event)
    context.n_computed = context.n_published = 0


def fail(context: GeneratorContext, event: Fail) -> None:
    """Keeps the error and gives the sequence back."""
    context.error = event.error
    close(context, event)


def fail_not_finite(context: GeneratorContext, event: object) -> None:
    """Says in which layer the logits stopped being finite, and gives the sequence back."""
    context.error = not_finite(context.batch, context.output, context.n_step)
    close(context, event)


def not_finite(batch: Batch, output: int, n_tokens: int) -> NotFiniteError:
    """The error that names the first layer in which the last `n_tokens` tokens up to an output are not finite."""
    end = batch.output_rows[output] + 1
    bad = [layer for layer in batch.bad_layer[max(end - n_tokens, 0) : end] if layer >= 0]
    where = f"a value first stopped being finite in layer {min(bad)}" if bad else "the output matrix made them so"
    return NotFiniteError(f"the logits are not finite (NaN or infinity): {where}; the model file is likely damaged")


class GeneratorMachine(Machine[State, GeneratorContext]):
    """One request and its answer: `context.ids` behind the prompt, `text`, `error`."""

    INITIAL = State.QUEUED
    TERMINAL = frozenset({State.STOPPED, State.LENGTH, State.CANCELLED, State.FAILED})
    TABLE = (
        #   source             event     guard             effect            destination
        Row(State.QUEUED,      Admit,    None,             open_sequence,    State.PREFILLING),
        Row(State.QUEUED,      Join,     None,             fork_leader,      State.COMPUTED),
        Row(State.QUEUED,      Cancel,   None,             close,            State.CANCELLED),
        Row(State.QUEUED,      Fail,     None,             fail,             State.FAILED),
        Row(State.PREFILLING,  Computed, has_more_to_read, take_computed,    State.PREFILLING),
        Row(State.PREFILLING,  Computed, None,             take_computed,    State.COMPUTED),
        Row(State.PREFILLING,  Preempt,  None,             give_back,        State.QUEUED),
        Row(State.PREFILLING,  Cancel,   None,             close,            State.CANCELLED),
        Row(State.PREFILLING,  Fail,     None,             fail,             State.FAILED),
        Row(State.COMPUTED,    None,     is_not_finite,    fail_not_finite,  State.FAILED),
        Row(State.COMPUTED,    None,     wants_nothing,    finish,           State.LENGTH),
        Row(State.COMPUTED,    None,     None,             choose,           State.CHOSEN),
        Row(State.COMPUTED,    Cancel,   None,             close,            State.CANCELLED),
        Row(State.COMPUTED,    Fail,     None,             fail,             State.FAILED),
        Row(State.CHOSEN,      None,     is_end_token,     finish,           State.STOPPED),
        Row(State.CHOSEN,      None,     None,             show,             State.SHOWN),
        Row(State.CHOSEN,      Cancel,   None,             close,            State.CANCELLED),
        Row(State.CHOSEN,      Fail,     None,             fail,             State.FAILED),
        Row(State.SHOWN,       None,     met_stop_string,  finish,           State.STOPPED),
        Row(State.SHOWN,       None,     is_at_limit,      finish,           State.LENGTH),
        Row(State.SHOWN,       None,     is_as_drafted,    take_next_row,    State.COMPUTED),
        Row(State.SHOWN,       None,     has_draft,        take_back,        State.DECODING),
        Row(State.SHOWN,       None,     None,             None,             State.DECODING),
        Row(State.SHOWN,       Cancel,   None,             close,            State.CANCELLED),
        Row(State.SHOWN,       Fail,     None,             fail,             State.FAILED),
        Row(State.DECODING,    Computed, is_plain_token,   take_plain_token, State.DECODING),
        Row(State.DECODING,    Computed, None,             take_computed,    State.COMPUTED),
        Row(State.DECODING,    Preempt,  None,             give_back,        State.QUEUED),
        Row(State.DECODING,    Cancel,   None,             close,            State.CANCELLED),
        Row(State.DECODING,    Fail,     None,             fail,             State.FAILED),
    )  # fmt: skip
