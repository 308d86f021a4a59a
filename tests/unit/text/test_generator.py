"""The generator machine with fakes: a graph that says what comes next, a tokenizer whose tokens are letters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from emel.sm import UnexpectedEvent
from emel.text.errors import GenerationError
from emel.text.generator import (
    Advance,
    Begin,
    Cancel,
    GeneratorContext,
    GeneratorMachine,
    State,
    check_output,
)
from emel.text.renderer import Renderer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emel.graph.batch import Outputs

END, CONTROL = 0, 1
N_CTX = 12


def ids_of(text: str) -> list[int]:
    return [ord(letter) for letter in text]


class FakeTokenizer:
    """Code points as tokens; 0 ends, 1 is a control token."""

    end_ids = frozenset({END})

    def is_control(self, token_id: int) -> bool:
        return token_id <= CONTROL

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id])


@dataclass
class FakeBatch:
    """Records what each step computes."""

    steps: list[tuple[list[int], int, int]] = field(default_factory=list)
    argmax: list[int] = field(default_factory=lambda: [0])
    bad_layer: list[int] = field(default_factory=lambda: [-1] * 4)
    n_tokens: int = 0
    pending: tuple[list[int], int, int] | None = None

    def clear(self) -> None:
        self.pending = None

    def add(self, tokens: Sequence[int], first: int, sequence: int, *, outputs: Outputs) -> None:
        self.pending = (list(tokens), first, sequence)

    def add_token(self, token: int, position: int, sequence: int) -> None:
        self.pending = ([token], position, sequence)


class FakeCache:
    """Rows of a block table, with a count of their tokens."""

    n_ctx = N_CTX
    max_sequences = 2

    def __init__(self) -> None:
        self.held: dict[int, int] = {}

    def can_open(self) -> bool:
        return len(self.held) < self.max_sequences

    def open(self) -> int:
        sequence = min({0, 1} - self.held.keys())
        self.held[sequence] = 0
        return sequence

    def reserve(self, sequence: int, n: int) -> int:
        first = self.held[sequence]
        if first + n > self.n_ctx:
            raise ValueError("the context is full")
        self.held[sequence] = first + n
        return first

    def close_sequence(self, sequence: int) -> None:
        del self.held[sequence]


class FakeGraph:
    """The n-th batch with logits is followed by the n-th letter of `answer`; the `fails_at`-th batch raises."""

    def __init__(self, answer: str, fails_at: int = 0, error: BaseException | None = None) -> None:
        self.answer, self.fails_at, self.error = iter(answer), fails_at, error
        self.n_batches = 0
        self.n_prompt = 0

    def compute(self, batch: FakeBatch) -> None:
        self.n_batches += 1
        assert batch.pending is not None
        batch.steps.append(batch.pending)
        if self.n_batches == self.fails_at and self.error is not None:
            raise self.error
        tokens, first, _ = batch.pending
        if first + len(tokens) >= self.n_prompt:
            batch.argmax[0] = ord(next(self.answer))


class FakeSampler:
    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.positions: list[int] = []

    def choose(self, batch: FakeBatch, output: int, position: int) -> int:
        self.positions.append(position)
        if self.error is not None:
            raise self.error
        return batch.argmax[output]


def machine(prompt: str = "abc", answer: str = "xyz\0", **changes: Any) -> GeneratorMachine:
    graph = changes.pop("graph", None) or FakeGraph(answer)
    graph.n_prompt = len(prompt)
    fields: dict[str, Any] = {
        "prompt_ids": ids_of(prompt),
        "max_tokens": None,
        "sampler": FakeSampler(),
        "renderer": Renderer(changes.pop("stops", ())),
        "tokenizer": FakeTokenizer(),
        "graph": graph,
        "batch": FakeBatch(),
        "cache": FakeCache(),
        "chunk": 4,
    }
    return GeneratorMachine(GeneratorContext(**(fields | changes)))


def run(generator: GeneratorMachine) -> list[str]:
    """Begins and advances to the end; the text of every step."""
    generator.dispatch(Begin())
    texts = []
    while generator.state not in GeneratorMachine.TERMINAL:
        generator.dispatch(Advance())
        texts.append(generator.context.new_text)
    assert generator.context.sequence is None
    assert generator.context.cache.held == {}
    return texts


def test_generator_writes_until_the_end_token() -> None:
    generator = machine("abcdefg", "xyz\0")
    assert run(generator) == ["", "x", "y", "z", ""]
    context = generator.context
    assert generator.state is State.STOPPED
    assert context.token_ids == [*ids_of("xyz"), END]
    assert context.batch.steps == [
        (ids_of("abcd"), 0, 0), (ids_of("efg"), 4, 0), (ids_of("x"), 7, 0), (ids_of("y"), 8, 0), (ids_of("z"), 9, 0),
    ]  # fmt: skip
    assert context.sampler.positions == [7, 8, 9, 10]


@pytest.mark.parametrize(("n", "n_chunks"), [(1, 1), (3, 1), (4, 1), (5, 2), (8, 2), (9, 3), (12, 3)])
def test_generator_takes_the_prompt_in_chunks(n: int, n_chunks: int) -> None:
    generator = machine("p" * n, "\0")
    run(generator)
    assert [len(tokens) for tokens, _, _ in generator.context.batch.steps] == [4] * (n_chunks - 1) + [
        n - 4 * (n_chunks - 1)
    ]


def test_generator_ends_at_its_limit_of_tokens() -> None:
    generator = machine(answer="xyzxyz", max_tokens=3)
    assert "".join(run(generator)) == "xyz"
    assert generator.state is State.LENGTH
    assert generator.context.stop is None


def test_generator_that_wants_no_token_computes_the_prompt_alone() -> None:
    generator = machine("abcdef", "x", max_tokens=0)
    assert run(generator) == ["", ""]
    assert generator.state is State.LENGTH
    assert generator.context.token_ids == []
    assert generator.context.n_computed == 6


def test_generator_ends_where_the_context_is_full() -> None:
    generator = machine("p" * (N_CTX - 2), "xyzxyz")
    assert "".join(run(generator)) == "xyz"  # the last token is not computed with any more
    assert generator.state is State.LENGTH
    assert len(generator.context.batch.steps) == 3 + 2


def test_generator_ends_before_a_stop_string_and_gives_what_was_held_back() -> None:
    generator = machine(answer="axyb", stops=["xyz", "yb"])
    assert run(generator) == ["a", "", "", "x"]
    assert generator.state is State.STOPPED
    assert generator.context.stop == "yb"


@pytest.mark.parametrize(
    ("answer", "limit", "texts"), [("axy\0", None, ["a", "", "", "xy"]), ("axy", 3, ["a", "", "xy"])]
)
def test_generator_gives_held_back_text_at_the_end(answer: str, limit: int | None, texts: list[str]) -> None:
    generator = machine(answer=answer, stops=["xyz"], max_tokens=limit)
    assert run(generator) == texts
    assert generator.context.stop is None


def test_generator_shows_no_control_token() -> None:
    generator = machine(answer="a\x01b\0")
    assert "".join(run(generator)) == "ab"
    assert generator.context.token_ids == [*ids_of("a\x01b"), END]


@pytest.mark.parametrize(
    ("prompt", "error"),
    [
        ("", "the prompt has no tokens: give at least one character"),
        ("p" * 13, "the prompt has 13 tokens, the context holds 12: shorten it, or load with a larger n_ctx"),
    ],
)
def test_generator_refuses_prompts_that_do_not_fit(prompt: str, error: str) -> None:
    generator = machine(prompt)
    generator.dispatch(Begin())
    assert generator.state is State.FAILED
    assert isinstance(generator.context.error, GenerationError)
    assert str(generator.context.error) == error


def test_generator_is_refused_when_all_sequences_are_in_use() -> None:
    cache = FakeCache()
    held = [machine(cache=cache) for _ in range(2)]
    for each in held:
        each.dispatch(Begin())
    third = machine(cache=cache)
    third.dispatch(Begin())
    assert third.state is State.FAILED
    assert str(third.context.error) == "all 2 sequences are in use: finish or close another request first"
    held[0].dispatch(Cancel())
    fourth = machine(cache=cache)
    fourth.dispatch(Begin())
    assert (fourth.state, fourth.context.sequence) == (State.PREFILLING, 0)


@pytest.mark.parametrize("error", [ValueError("a"), RuntimeError("b"), MemoryError("c")])
@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_generator_that_fails_at_any_step_closes_its_sequence(at: int, error: Exception) -> None:
    generator = machine("abcdef", "xyz\0", graph=FakeGraph("xyz\0", at, error), stops=["xq"])
    run(generator)
    assert generator.state is State.FAILED
    assert generator.context.error is error
    assert generator.context.new_text == ""


def test_generator_whose_draw_fails_closes_its_sequence() -> None:
    generator = machine(sampler=FakeSampler(RuntimeError("refused")))
    run(generator)
    assert generator.state is State.FAILED
    assert str(generator.context.error) == "refused"


@pytest.mark.parametrize("n_steps", [0, 1, 2, 3, 4])
def test_generator_can_be_cancelled_at_any_step(n_steps: int) -> None:
    generator = machine("abcdef", "xyz\0", stops=["yq"])
    generator.dispatch(Begin())
    for _ in range(n_steps):
        generator.dispatch(Advance())
    generator.dispatch(Cancel())
    assert generator.state is State.CANCELLED
    assert generator.context.cache.held == {}
    assert generator.context.new_text == ""  # neither what was shown already nor what was held back


def test_generator_can_be_cancelled_before_it_begins() -> None:
    generator = machine()
    generator.dispatch(Cancel())
    assert generator.state is State.CANCELLED


@pytest.mark.parametrize("at", [1, 2, 3])
def test_generator_interrupted_while_it_computes_can_be_cancelled(at: int) -> None:
    generator = machine("abcdef", "xyz\0", graph=FakeGraph("xyz\0", at, KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        run(generator)
    generator.dispatch(Cancel())
    assert generator.state is State.CANCELLED
    assert generator.context.cache.held == {}


@pytest.mark.parametrize(
    ("member", "name", "state"),
    [
        ("sampler", "choose", State.PROMPT_DONE),
        ("tokenizer", "token_bytes", State.CHOSEN),
        ("renderer", "feed", State.CHOSEN),
    ],
)
def test_generator_interrupted_between_two_states_can_be_cancelled(
    member: str, name: str, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    generator = machine()
    generator.dispatch(Begin())
    monkeypatch.setattr(type(getattr(generator.context, member)), name, interrupt)
    with pytest.raises(KeyboardInterrupt):
        generator.dispatch(Advance())
    assert generator.state is state
    with pytest.raises(UnexpectedEvent):
        generator.dispatch(Advance())
    generator.dispatch(Cancel())
    assert generator.state is State.CANCELLED
    assert generator.context.cache.held == {}


@pytest.mark.parametrize(
    ("bad_layer", "text"),
    [
        ([-1, -1, -1], "the output matrix made them so"),
        ([-1, 5, 2], "a value first stopped being finite in layer 2"),
        ([0, -1, -1], "a value first stopped being finite in layer 0"),
    ],
)
def test_output_that_is_not_finite_is_refused(bad_layer: list[int], text: str) -> None:
    batch: Any = FakeBatch(argmax=[-1], bad_layer=[*bad_layer, 1], n_tokens=3)  # the last one is an earlier run's
    with pytest.raises(GenerationError) as caught:
        check_output(batch, 0)
    assert str(caught.value) == (
        f"the logits are not finite (NaN or infinity): {text}; the model file is likely damaged"
    )
    batch.argmax[0] = 0
    check_output(batch, 0)
