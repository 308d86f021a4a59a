"""Rotary positions and attention over the paged KV cache: near float64, and the same bits however it is cut."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from emel._native import LIBRARY, check
from emel._native.abi import KV_BLOCK, NONE, OpKind
from emel.tensor.types import TensorType
from native.small_plan import SmallPlan, int32

if TYPE_CHECKING:
    from emel.kernel.pool import LanePool

EPSILON = 2.0**-24  # half a unit in the last place of float32
ROPE_ERROR = 3 * EPSILON  # of |a| + |b|: cosine and sine, two products, a sum
EXP_ERROR = 4e-7  # relative, of a weight
CAP_ERROR = 6e-7  # of a capped score, relative to the cap

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Heads:
    """Geometry of one attention; n_rot 0 leaves q and k as they are."""

    n_heads: int = 3
    n_kv_heads: int = 1
    head_dim: int = 64
    n_rot: int = 0
    pairing: int = 0
    scale: float = 0.125
    norms: tuple[Array | None, ...] = ()  # of query and key heads
    epsilon: float = 0.0
    magnitude: float = 0.0  # of cosines and sines; 0 leaves them
    window: int = 0
    both_ways: int = 0
    cap: float = 0.0
    sinks: Array | None = None
    kv_type: TensorType = TensorType.F16


class AttentionPlan(SmallPlan):
    """ROPE_TABLE, ROPE_STORE and ATTENTION over one KV layer."""

    def __init__(
        self,
        heads: Heads,
        max_tokens: int,
        isa: int = 0,
        n_blocks: int = 8,
        max_sequences: int = 1,
        sequence_blocks: int = 0,
    ) -> None:
        super().__init__(isa, max_tokens=max_tokens, max_sequences=min(max_sequences, max_tokens), n_blocks=n_blocks)
        self.desc.kv_type, self.desc.max_sequence_blocks = heads.kv_type, sequence_blocks or n_blocks
        self.desc.n_kv_layers, self.desc.n_kv_heads, self.desc.head_dim = 1, heads.n_kv_heads, heads.head_dim
        self.heads = heads
        self.q_width, self.kv_width = heads.n_heads * heads.head_dim, heads.n_kv_heads * heads.head_dim
        self.q, self.out = self.place(max_tokens * self.q_width * 4), self.place(max_tokens * self.q_width * 4)
        self.k, self.v = self.place(max_tokens * self.kv_width * 4), self.place(max_tokens * self.kv_width * 4)
        table = self.place(max_tokens * heads.n_rot * 4)
        scratch = self.place(
            LIBRARY.emel_attention_scratch(
                max_tokens, heads.n_heads, heads.n_kv_heads, heads.head_dim, sequence_blocks or n_blocks
            )
        )
        if heads.n_rot:
            frequencies = np.zeros(heads.n_rot // 2)
            check(LIBRARY.emel_rope_frequencies(10000.0, heads.n_rot, frequencies.ctypes.data))
            self.add(
                OpKind.ROPE_TABLE,
                out=[table],
                weight={0: self.vector(frequencies, np.float64)},
                param=[heads.magnitude],
            )
        dims = [heads.n_heads, heads.n_kv_heads, heads.head_dim]
        norms = {slot: self.vector(weight) for slot, weight in enumerate(heads.norms) if weight is not None}
        self.add(
            OpKind.ROPE_STORE,
            in_=[self.q, self.k, self.v, table if heads.n_rot else NONE],
            dim=[*dims, heads.n_rot, heads.pairing, 0],
            weight=norms,
            param=[heads.epsilon],
        )
        self.add(
            OpKind.ATTENTION,
            in_=[self.q, scratch],
            out=[self.out],
            dim=[*dims, 0, heads.window, heads.both_ways],
            param=[heads.scale, heads.cap],
            weight={} if heads.sinks is None else {0: self.vector(heads.sinks)},
        )
        self.create()

    def attend(self, pool: LanePool, q: Array, k: Array, v: Array, **arrays: ArrayLike) -> Array:
        """(n_tokens, n_heads, head_dim) for tokens whose q, k, v are given as (n_tokens, heads, head_dim)."""
        for place, values in ((self.q, q), (self.k, k), (self.v, v)):
            self.write(place, values)
        self.run(pool, len(q), **arrays)
        return self.read(self.out, (len(q), self.heads.n_heads, self.heads.head_dim))


@dataclass(frozen=True)
class Sequence:
    """Everything one sequence feeds to attention, (n, heads, head_dim) each."""

    q: Array
    k: Array
    v: Array

    def __getitem__(self, part: slice) -> tuple[Array, Array, Array]:
        return self.q[part], self.k[part], self.v[part]


def random_sequence(heads: Heads, n: int, seed: int = 0) -> Sequence:
    rng = np.random.default_rng(seed)
    shapes = [(n, count, heads.head_dim) for count in (heads.n_heads, heads.n_kv_heads, heads.n_kv_heads)]
    return Sequence(*(rng.standard_normal(shape).astype(np.float32) * np.float32(2) for shape in shapes))


def shuffled_table(n_blocks: int, n_rows: int = 1, seed: int = 3) -> NDArray[np.int32]:
    """(n_rows, n_blocks / n_rows) blocks of the cache in no order."""
    blocks = np.random.default_rng(seed).permutation(n_blocks)
    return int32(blocks[: n_blocks // n_rows * n_rows].reshape(n_rows, -1))


def in_chunks(
    heads: Heads, sequence: Sequence, chunks: list[int], isa: int, pool: LanePool, *, n_blocks: int | None = None
) -> Array:
    """The attention of a sequence fed in chunks of these sizes."""
    n_blocks = n_blocks or -(-len(sequence.q) // KV_BLOCK) + 2
    table = shuffled_table(n_blocks)
    out, at = [], 0
    with AttentionPlan(heads, max(chunks), isa, n_blocks) as plan:
        for n in chunks:
            part = sequence[at : at + n]
            out.append(plan.attend(pool, *part, positions=range(at, at + n), block_table=table))
            at += n
    return np.concatenate(out)


def cached(x: Array, kv_type: TensorType) -> NDArray[np.float64]:
    """(n, heads, head_dim) as a cache keeps it: float16, float32, or parts of 32 as int8 with a float16 scale."""
    if kv_type is TensorType.F32:
        return x.astype(np.float64)
    if kv_type is TensorType.F16:
        return x.astype(np.float16).astype(np.float64)
    head_dim = x.shape[-1]
    parts = np.pad(x, ((0, 0), (0, 0), (0, -head_dim % 32))).reshape(*x.shape[:2], -1, 32)
    scales = (np.abs(parts).max(axis=-1, keepdims=True) / np.float32(127)).astype(np.float16).astype(np.float32)
    divisors = np.where(scales == 0, np.float32(1), scales)
    quants = np.rint(np.clip(parts / divisors, -127, 127)) * (scales != 0)
    return (quants * scales).reshape(*x.shape[:2], -1)[..., :head_dim].astype(np.float64)


def exact_attention(heads: Heads, s: Sequence) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Softmax attention in float64 over keys and values as cached, and what float32 may do to each output."""
    shared = heads.n_heads // heads.n_kv_heads
    k, v = (np.repeat(cached(x, heads.kv_type), shared, axis=1) for x in (s.k, s.v))
    q = s.q.astype(np.float64)
    seen = keys_seen(heads, len(q))
    scores = np.einsum("ihd,jhd->hij", q, k) * heads.scale
    if heads.cap:
        scores = heads.cap * np.tanh(scores / heads.cap)
    scores = np.where(seen, scores, -np.inf)
    sinks = np.full(heads.n_heads, -np.inf) if heads.sinks is None else heads.sinks.astype(np.float64)
    largest = np.maximum(scores.max(axis=2), sinks[:, None])
    weights = np.exp(scores - largest[:, :, None])
    weights /= (weights.sum(axis=2) + np.exp(sinks[:, None] - largest))[:, :, None]
    size = np.einsum("ihd,jhd->hij", np.abs(q), np.abs(k)) * heads.scale
    score_error = np.where(seen, (heads.head_dim + 4) * EPSILON * size + heads.cap * CAP_ERROR, 0).max(axis=2)
    if heads.kv_type is TensorType.Q8_0:  # queries are activations of 2 * 32512 steps
        largest_part = np.abs(q).max(axis=-1)[..., None]
        rounding = np.einsum("ihd,jhd->hij", np.broadcast_to(largest_part / 65024, q.shape), np.abs(k)) * heads.scale
        score_error += np.where(seen, rounding, 0).max(axis=2)
    weight_error = 2 * score_error + 2 * EXP_ERROR + 300 * EPSILON  # (h, i)
    bound = np.einsum("hij,jhd->ihd", weights, np.abs(v)) * weight_error.T[:, :, None]
    return np.einsum("hij,jhd->ihd", weights, v), bound


def keys_seen(heads: Heads, n: int) -> NDArray[np.bool_]:
    """(n, n): whether a query (row) sees a key (column)."""
    behind = np.arange(n)[:, None] - np.arange(n)  # how far the key lies before the query
    if heads.both_ways:
        return np.abs(behind) <= (heads.window // 2 if heads.window else n)
    return (behind >= 0) & (behind < (heads.window or n))


GEOMETRIES = {
    "one head": Heads(1, 1, 64),
    "grouped": Heads(9, 3, 64),
    "head of 16": Heads(2, 2, 16),
    "head of 40": Heads(6, 2, 40, scale=0.3),
    "head of 80": Heads(4, 2, 80),
    "odd head of 7": Heads(2, 1, 7),
    "head of 512": Heads(1, 1, 512, scale=0.04),
    "more rows than a tile": Heads(70, 1, 16),
    "float32": Heads(9, 3, 64, kv_type=TensorType.F32),
    "float32 of 40": Heads(6, 2, 40, scale=0.3, kv_type=TensorType.F32),
    "float32, odd head of 7": Heads(2, 1, 7, kv_type=TensorType.F32),
    "float32, head of 512": Heads(1, 1, 512, scale=0.04, kv_type=TensorType.F32),
    "float32, more rows than a tile": Heads(70, 1, 16, kv_type=TensorType.F32),
}


@pytest.mark.parametrize("heads", GEOMETRIES.values(), ids=GEOMETRIES)
@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 40])
def test_attention_is_near_float64(heads: Heads, n: int, routes: dict[str, int], lanes: dict[int, LanePool]) -> None:
    sequence = random_sequence(heads, n)
    expected, bound = exact_attention(heads, sequence)
    specification = in_chunks(heads, sequence, [n], routes["scalar"], lanes[1])
    assert (np.abs(specification - expected) <= bound).all()
    for isa in routes.values():
        assert np.array_equal(in_chunks(heads, sequence, [n], isa, lanes[3]), specification)


@pytest.mark.parametrize(
    "heads",
    [Heads(3, 1, 64), Heads(4, 2, 40, n_rot=40), Heads(3, 1, 64, kv_type=TensorType.F32)],
    ids=["plain", "rotated", "float32"],
)
def test_attention_over_several_chunks_is_the_same_however_it_is_fed(
    heads: Heads, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    """530 keys lie in three chunks of 256; one token at a time past 256 splits chunks over the lanes."""
    n = 530
    sequence = random_sequence(heads, n)
    best = list(routes.values())[-1]
    whole = in_chunks(heads, sequence, [n], best, lanes[1])
    if heads.n_rot == 0:
        expected, bound = exact_attention(heads, sequence)
        assert (np.abs(whole - expected) <= bound).all()
    for chunks in ([n], [255, 1, 1, 255, 16, 2], [256, 256, 18], [1] * 3 + [510] + [1] * 17, [7] * 75 + [5]):
        for pool in lanes.values():
            assert np.array_equal(in_chunks(heads, sequence, chunks, best, pool), whole), chunks[:6]
    for isa in routes.values():
        assert np.array_equal(in_chunks(heads, sequence, [500, 17, 13], isa, lanes[3]), whole)


def test_a_float32_cache_gives_back_what_it_was_given(routes: dict[str, int], lanes: dict[int, LanePool]) -> None:
    """A query that sees one key alone gets its value, bit for bit."""
    heads = Heads(2, 2, 40, window=1, kv_type=TensorType.F32)
    sequence = random_sequence(heads, 33)
    for isa in routes.values():
        assert np.array_equal(in_chunks(heads, sequence, [20, 13], isa, lanes[3]), sequence.v)


def test_attention_does_not_depend_on_the_size_of_the_cache(lanes: dict[int, LanePool]) -> None:
    heads, chunks = Heads(2, 1, 32), [290, 1, 9]
    sequence = random_sequence(heads, sum(chunks))
    results = [in_chunks(heads, sequence, chunks, 0, lanes[3], n_blocks=n) for n in (19, 32, 33, 100)]
    assert all(np.array_equal(results[0], other) for other in results[1:])


def test_sequences_in_one_batch_get_their_solo_bits(routes: dict[str, int], lanes: dict[int, LanePool]) -> None:
    heads, lengths = Heads(6, 2, 40, n_rot=20, pairing=1), [3, 300, 1, 17]
    sequences = [random_sequence(heads, n, seed) for seed, n in enumerate(lengths)]
    n_all = sum(lengths)
    table = shuffled_table(4 * 20, 4)
    solo = [in_chunks(heads, s, [len(s.q)], 0, lanes[1]) for s in sequences]
    together = [np.concatenate([getattr(s, name) for s in sequences]) for name in "qkv"]
    for isa in routes.values():
        for pool in lanes.values():
            with AttentionPlan(heads, n_all, isa, 80, max_sequences=4) as plan:
                out = plan.attend(
                    pool,
                    *together,
                    positions=np.concatenate([np.arange(n) for n in lengths]),
                    sequences=np.repeat(np.arange(4), lengths),
                    block_table=table,
                )
            assert np.array_equal(out, np.concatenate(solo))


def test_sequences_decode_together_at_different_depths(routes: dict[str, int], lanes: dict[int, LanePool]) -> None:
    """Each adds one token to its own past, on both sides of the border at 256 keys."""
    heads, depths = Heads(3, 1, 64), [0, 255, 256, 511, 40]
    sequences = [random_sequence(heads, depth + 1, depth) for depth in depths]
    solo = np.stack([in_chunks(heads, s, [len(s.q)], 0, lanes[1])[-1] for s in sequences])
    table = shuffled_table(5 * 33, 5)
    for isa in routes.values():
        for pool in lanes.values():
            with AttentionPlan(heads, 511, isa, 5 * 33, max_sequences=5) as plan:
                for index, (depth, sequence) in enumerate(zip(depths, sequences, strict=True)):
                    if depth:
                        at = [index] * depth
                        plan.attend(pool, *sequence[:depth], positions=range(depth), sequences=at, block_table=table)
                last = [np.concatenate([getattr(s, name)[-1:] for s in sequences]) for name in "qkv"]
                out = plan.attend(pool, *last, positions=depths, sequences=range(5), block_table=table)
            assert np.array_equal(out, solo)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_sequence_that_is_not_finite_takes_no_other_with_it(
    bad: float, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    heads = Heads(2, 1, 32)
    sequences = [random_sequence(heads, 20, seed) for seed in range(3)]
    solo = [in_chunks(heads, s, [20], 0, lanes[1]) for s in sequences]
    arrays: dict[str, Any] = {
        "positions": np.tile(np.arange(20), 3),
        "sequences": np.repeat(np.arange(3), 20),
        "block_table": shuffled_table(6, 3),
    }
    for name in "qkv":
        together = {each: np.concatenate([getattr(s, each) for s in sequences]) for each in "qkv"}
        together[name][30, 0, 5] = bad  # token 10 of sequence 1
        for isa in routes.values():
            with AttentionPlan(heads, 60, isa, 6, max_sequences=3) as plan:
                out = plan.attend(lanes[3], *together.values(), **arrays)
            assert np.array_equal(out[:20], solo[0])
            assert np.array_equal(out[40:], solo[2])
            assert np.array_equal(out[20:30], solo[1][:10])  # what came before it
            spoiled = out[30:31] if name == "q" else out[30:40]
            assert not np.isfinite(spoiled).all(axis=(1, 2)).any()


@pytest.mark.parametrize("pairing", [0, 1], ids=["adjacent", "halves"])
@pytest.mark.parametrize(("head_dim", "n_rot"), [(64, 64), (40, 40), (80, 32), (6, 2), (64, 30)])
def test_rope_is_near_float64_and_stores_what_it_gives(
    head_dim: int, n_rot: int, pairing: int, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    heads = Heads(2, 1, head_dim, n_rot, pairing)
    positions = np.array([0, 1, 2, 1000, 1001])
    sequence = random_sequence(heads, 5)
    table = shuffled_table(2 * 63, 2)
    results = {}
    for name, isa in routes.items():
        with AttentionPlan(heads, 5, isa, 126, max_sequences=2) as plan:
            plan.kv[:] = 0  # the keys before position 1000 are of no interest
            plan.attend(lanes[3], *sequence[:], positions=positions, sequences=[0, 0, 0, 1, 1], block_table=table)
            q, k = plan.read(plan.q, sequence.q.shape), plan.read(plan.k, sequence.k.shape)
            results[name] = (q.tobytes(), k.tobytes(), plan.kv.tobytes())
            assert_stored(plan, k, sequence.v, positions, table)
    for got, given in ((q, sequence.q), (k, sequence.k)):
        exact = rotated(given, positions, heads)
        largest = np.abs(given[..., :n_rot]).max(axis=-1, keepdims=True)
        assert (np.abs(got - exact) <= ROPE_ERROR * 2 * largest).all()
        assert np.array_equal(got[..., n_rot:], given[..., n_rot:])
        assert np.array_equal(got[0], given[0])  # position 0
    assert all(result == results["scalar"] for result in results.values())


def rotated(x: Array, positions: NDArray[np.int64], heads: Heads) -> NDArray[np.float64]:
    """(n, heads, head_dim) rotated in float64."""
    n_pairs = heads.n_rot // 2
    angles = positions[:, None] * 10000.0 ** (-2 * np.arange(n_pairs) / heads.n_rot)
    cosine, sine = np.cos(angles)[:, None], np.sin(angles)[:, None]
    if heads.magnitude:
        cosine, sine = cosine * np.float32(heads.magnitude), sine * np.float32(heads.magnitude)
    first = np.arange(n_pairs) if heads.pairing else 2 * np.arange(n_pairs)
    second = first + (n_pairs if heads.pairing else 1)
    out = x.astype(np.float64)
    a, b = out[..., first].copy(), out[..., second].copy()
    out[..., first] = a * cosine - b * sine
    out[..., second] = a * sine + b * cosine
    return out


def assert_stored(
    plan: AttentionPlan, k: Array, v: Array, positions: NDArray[np.int64], table: NDArray[np.int32]
) -> None:
    """Keys lie (head_dim, 16 tokens), values (16 tokens, padded head_dim), float16, in the blocks of the table."""
    d, n = plan.heads.head_dim, plan.heads.n_kv_heads
    padded = -(-d // 16) * 16
    keys_bytes = -(-d * KV_BLOCK * 2 // 64) * 64
    for token, position in enumerate(positions):
        block = table[0 if token < 3 else 1, position // KV_BLOCK]
        for head in range(n):
            at = (block * n + head) * (keys_bytes + padded * KV_BLOCK * 2)
            keys = plan.kv[at : at + d * KV_BLOCK * 2].view(np.float16).reshape(d, KV_BLOCK)
            at += keys_bytes
            values = plan.kv[at : at + padded * KV_BLOCK * 2].view(np.float16).reshape(KV_BLOCK, padded)
            assert np.array_equal(keys[:, position % KV_BLOCK], k[token, head].astype(np.float16))
            assert np.array_equal(values[position % KV_BLOCK, :d], v[token, head].astype(np.float16))


@pytest.mark.parametrize("base", [1.0, 10000.0, 500000.0, 1e12])
@pytest.mark.parametrize("n_rot", [2, 6, 64, 128])
def test_rope_frequencies_are_near_numpy(base: float, n_rot: int) -> None:
    frequencies = np.zeros(n_rot // 2)
    check(LIBRARY.emel_rope_frequencies(base, n_rot, frequencies.ctypes.data))
    assert np.allclose(frequencies, base ** (-2 * np.arange(n_rot // 2) / n_rot), rtol=1e-13, atol=0)
    assert frequencies[0] == 1.0


def test_attention_of_equal_keys_is_the_mean_of_the_values(lanes: dict[int, LanePool]) -> None:
    """Equal scores: weights of exactly 1 each, so values in {-1, 1} give an exact mean for 2^n keys."""
    heads = Heads(1, 1, 16)
    sequence = random_sequence(heads, 512)
    v = np.where(sequence.v > 0, np.float32(1), np.float32(-1))
    equal = replace(sequence, k=np.ones_like(sequence.k), v=v)
    out = in_chunks(heads, equal, [512], 0, lanes[1])
    for n_keys in (1, 2, 16, 256, 512):
        assert np.array_equal(out[n_keys - 1, 0], v[:n_keys, 0].mean(axis=0))
