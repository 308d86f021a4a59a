"""A wave over a real cache and a graph that is a hash: the next token depends on every token before it.

Each token leaves a mark in the cache's own memory, made from its id and the mark before it. A block shared wrongly,
copied late or handed out twice changes a mark, and with it the rest of the answer. With a recurrent state the mark
before comes from there: a state that was not taken back, or belongs to somebody else, shows in the same way.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any
from zlib import crc32

from emel.graph.batch import Batch
from emel.graph.capacity import Capacity
from emel.graph.ops import Heads
from emel.graph.state_ops import StateGeometry
from emel.kernel.sizes import KV_BLOCK
from emel.memory.hybrid import HybridCache
from emel.memory.kv import KvCache
from emel.memory.recurrent import RecurrentSlots
from emel.text.generator import GeneratorContext, GeneratorMachine, State
from emel.text.lanes import WaveKey
from emel.text.prompt_share import PromptShare
from emel.text.renderer import Renderer
from emel.text.stop_strings import StopStrings
from emel.text.waiting import rank_of
from emel.text.wavefront import Step, Submit, WaveContext, WavefrontMachine, Withdraw

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

N_VOCAB, END = 40, 0
KEY = WaveKey("m", "scalar", "causal", "last", "f16")


def next_mark(mark: int, token: int) -> int:
    return crc32(token.to_bytes(2, "little"), mark) & 0xFFFF


def mark_of(ids: Sequence[int]) -> int:
    mark = 1
    for token in ids:
        mark = next_mark(mark, token)
    return mark


def choice(mark: int, shift: int = 0) -> int:
    return (mark + shift) % N_VOCAB


def answer(prompt: Sequence[int], max_tokens: int | None, n_ctx: int, shift: int = 0) -> list[int]:
    """What the request gives alone; `shift` stands for a seed."""
    ids, mark = list(prompt), mark_of(prompt)
    while len(ids) - len(prompt) != max_tokens and len(ids) < n_ctx:
        ids.append(choice(mark, shift))
        if ids[-1] == END:
            break
        mark = next_mark(mark, ids[-1])
    return ids[len(prompt) :]


class HashGraph:
    """Computes marks; `fault` may raise before a run, as a refused one does. Checks what the native library would."""

    def __init__(
        self, cache: KvCache, fault: Callable[[Batch], None] = lambda _: None, *, states: HybridCache | None = None
    ) -> None:
        self._cache, self.fault, self._states = cache, fault, states
        self._numbers = memoryview(cache.storage._view).cast("H")
        self._per_block = cache.geometry.block_bytes // 2
        self.bad_positions: set[int] = set()
        self.n_runs = 0

    def compute(self, batch: Batch) -> None:
        self.n_runs += 1
        self.fault(batch)
        sequences = list(batch.sequences[: batch.n_tokens])
        assert sequences == sorted(sequences)
        rows: dict[int, tuple[int, ...]] = {}
        for at, sequence in enumerate(sequences):
            position = batch.positions[at]
            row = rows.setdefault(sequence, self._cache.blocks(sequence))
            assert at == 0 or sequences[at - 1] != sequence or batch.positions[at - 1] == position - 1
            mark = self._mark_before(sequence, row, position) if position else 1
            self._numbers[self._place(row, position)] = mark = next_mark(mark, batch.tokens[at])
            if self._states is not None:
                self._product(sequence, position)[0] = mark
        for output in range(batch.n_outputs):
            at = batch.output_rows[output]
            mark = self._numbers[self._place(rows[sequences[at]], batch.positions[at])]
            batch.argmax[output] = choice(mark)

    def _mark_before(self, sequence: int, row: Sequence[int], position: int) -> int:
        mark = self._numbers[self._place(row, position - 1)]
        return mark if self._states is None else self._product(sequence, position - 1)[0]

    def _product(self, sequence: int, position: int) -> memoryview[int]:
        """Where a state keeps the product of a position."""
        assert self._states is not None
        slots = self._states.slots
        state = slots._bytes(self._states.slot(sequence)).cast("I")
        return state[position % slots.geometry.n_kept :]

    def _place(self, row: Sequence[int], position: int) -> int:
        return row[position // KV_BLOCK] * self._per_block + position % KV_BLOCK


class Letters:
    """A tokenizer whose tokens are letters."""

    end_ids = frozenset({END})

    def is_control(self, token_id: int) -> bool:
        return token_id == END

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([ord("A") + token_id])


class ArgmaxSampler:
    """Takes the token `shift` behind the likeliest; raises at the position where it is to fail."""

    def __init__(self, fails_at: int | None = None, shift: int = 0) -> None:
        self.fails_at, self.shift = fails_at, shift
        self.is_argmax = fails_at is None and not shift
        self.accepted: list[int] = []

    def choose(self, batch: Batch, output: int, position: int) -> int:
        if position == self.fails_at:
            raise RuntimeError("no token is left")
        return (batch.argmax[output] + self.shift) % N_VOCAB

    def accept(self, token: int) -> None:
        self.accepted.append(token)


@dataclass(eq=False)
class FakeLane:
    """A request that notes what it hears."""

    generator: GeneratorMachine
    rank: int
    key: WaveKey = KEY
    followers: list[Any] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    ends: list[State] = field(default_factory=list)
    n_admitted: int = 0

    def admitted(self, now: float) -> None:
        self.n_admitted += 1

    def publish(self, now: float) -> None:
        assert not self.ends
        context = self.generator.context
        self.heard += context.text[context.n_shown :]
        context.n_shown = len(context.text)
        if context.sequence is None:
            assert self.generator.is_terminal
            self.ends.append(self.generator.state)

    @property
    def tokens(self) -> list[int]:
        context = self.generator.context
        return context.ids[context.n_prompt :]


class WaveOfFakes:
    """A wave with everything it needs."""

    def __init__(
        self,
        *,
        n_lanes: int = 4,
        n_ctx: int = 64,
        n_blocks: int | None = None,
        n_budget: int = 16,
        n_mixed: int = 5,
        prefix_bytes: int | None = None,
        has_state: bool = False,
    ) -> None:
        self.cache = KvCache(
            n_kv_layers=1,
            heads=Heads(1, 1, 2),
            n_ctx=n_ctx,
            max_sequences=n_lanes + 1,
            n_blocks=n_blocks,
            prefix_bytes=prefix_bytes,
        )
        capacity = Capacity(max(n_budget, n_lanes), max(n_lanes, 1), n_lanes + 1, self.cache.n_blocks)
        self.batch = Batch(capacity, N_VOCAB, self.cache.binding)
        states = None
        if has_state:
            states = HybridCache(self.cache, RecurrentSlots(2 * (n_lanes + 1), StateGeometry(1, 1, 1)))
        self.memory = states or self.cache
        self.graph = HashGraph(self.cache, states=states)
        clock = itertools.count()
        self.machine = WavefrontMachine(
            WaveContext(
                graph=self.graph,
                batch=self.batch,
                memory=self.memory,
                clock=lambda: float(next(clock)),
                n_lanes=n_lanes,
                n_budget=capacity.max_tokens,
                share=PromptShare(n_mixed),
            )
        )
        self.arrivals = itertools.count(1)
        self.everyone: list[FakeLane] = []

    @property
    def context(self) -> WaveContext:
        return self.machine.context

    def lane(
        self,
        prompt: Sequence[int],
        max_tokens: int | None = None,
        *,
        priority: int = 0,
        reuse: bool = True,
        fails_at: int | None = None,
        shift: int = 0,
        stops: Sequence[str] = (),
        key: WaveKey = KEY,
    ) -> FakeLane:
        """A request that was not submitted yet."""
        context = GeneratorContext(
            ids=list(prompt),
            n_prompt=len(prompt),
            max_tokens=max_tokens,
            sampler=ArgmaxSampler(fails_at, shift),  # type: ignore[arg-type]
            renderer=Renderer(StopStrings(stops)),
            tokenizer=Letters(),  # type: ignore[arg-type]
            end_ids=Letters.end_ids,
            batch=self.batch,
            memory=self.memory,
            reuses_prefix=reuse,
        )
        lane = FakeLane(GeneratorMachine(context), rank_of(next(self.arrivals), priority), key)
        self.everyone.append(lane)
        return lane

    def submit(self, prompt: Sequence[int], max_tokens: int | None = None, **options: Any) -> FakeLane:
        lane = self.lane(prompt, max_tokens, **options)
        self.machine.dispatch(Submit(lane))
        return lane

    def withdraw(self, lane: FakeLane) -> None:
        self.machine.dispatch(Withdraw(lane))

    def step(self, n: int = 1) -> None:
        for _ in range(n):
            self.machine.dispatch(Step())

    def finish(self, most: int = 100_000) -> None:
        """Steps until nobody is left."""
        for _ in range(most):
            if not self.context.lanes and not self.context.waiting:
                return
            self.step()
        raise AssertionError(f"{len(self.context.lanes)} lanes, {len(self.context.waiting)} wait after {most} steps")

    def check(self) -> None:
        """What must hold between two steps, whatever happened."""
        context, cache, counters = self.context, self.cache, self.context.counters
        rows = [lane.generator.context.sequence for lane in context.lanes]
        assert rows == sorted(rows, key=lambda row: -1 if row is None else row)
        assert None not in rows
        assert [row for row, state in enumerate(cache._sequences) if state is not None] == rows
        for lane in context.lanes:
            assert lane.generator.context.n_computed == cache.n_tokens(lane.generator.context.sequence or 0)
        if isinstance(self.memory, HybridCache):
            n_held = len(rows) + len(self.memory._checkpoints)
            assert self.memory.slots.n_free == self.memory.slots.n_slots - n_held
        left = [*context.lanes, *context.waiting]
        left += [follower for lane in left for follower in lane.followers]
        n_over = counters.n_stopped + counters.n_length + counters.n_cancelled + counters.n_failed
        assert counters.n_submitted == n_over + len(left)
        assert not set(context.suspects) - set(left)

    def check_over(self) -> None:
        """What must hold when nobody is left."""
        self.check()
        assert all(len(lane.ends) == 1 for lane in self.everyone)
        assert self.cache.free_blocks() == self.cache.n_blocks
        counters = self.context.counters
        admitted = [lane for lane in self.everyone if lane.n_admitted]
        assert counters.n_admitted == len(admitted)
        assert counters.n_prompt_tokens == sum(lane.generator.context.n_prompt for lane in admitted)
        assert counters.n_cached_tokens == sum(lane.generator.context.n_cached for lane in admitted)
        assert counters.n_generated_tokens == sum(len(lane.tokens) for lane in self.everyone)
        for state, n in (
            (State.STOPPED, counters.n_stopped),
            (State.LENGTH, counters.n_length),
            (State.CANCELLED, counters.n_cancelled),
            (State.FAILED, counters.n_failed),
        ):
            assert n == sum(lane.ends == [state] for lane in self.everyone)

    def check_answer(self, lane: FakeLane) -> None:
        """The answer is that of the request alone; of one that was ended, its beginning."""
        context = lane.generator.context
        shift = context.sampler.shift  # type: ignore[attr-defined]
        expected = answer(context.ids[: context.n_prompt], context.max_tokens, self.cache.n_ctx, shift)
        if lane.ends[0] in (State.STOPPED, State.LENGTH):
            assert lane.tokens == expected
            assert "".join(lane.heard) == "".join(chr(ord("A") + each) for each in expected if each != END)
        else:
            assert lane.tokens == expected[: len(lane.tokens)]
        if not context.sampler.is_argmax:
            assert context.sampler.accepted == lane.tokens  # type: ignore[attr-defined]

    def close(self) -> None:
        self.graph._numbers.release()
        self.batch.close()
        self.memory.close()


def random_prompt(random: Random, n_most: int) -> list[int]:
    """One of a few beginnings, and a tail of its own."""
    beginning = Random(random.randrange(3)).choices(range(1, N_VOCAB), k=40)
    n = random.randint(1, n_most)
    return [*beginning[: min(n, random.choice((0, 16, 33, 40)))], *random.choices(range(1, N_VOCAB), k=n)][:n]
