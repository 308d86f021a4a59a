"""A token's bits depend on its own sequence alone: not on the wave, the blocks, the route; nor does its failure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from emel.graph.batch import Batch, Outputs
from emel.graph.capacity import Capacity
from emel.graph.reservation import ReservedGraph
from emel.kernel.features import available_routes
from emel.kernel.pool import LanePool
from emel.memory.kv import KvCache
from unit.graph.tiny import F32, Q8, Tiny, pack_weights, raw_weights

TINY = Tiny(n_layers=3)
FLOAT = Tiny(n_layers=3, types=(F32,) * 8)
NAN = np.array([np.nan], np.float32).tobytes()


@dataclass
class Request:
    """A prompt, and the logits of every step: of its last token, then of each greedy token."""

    prompt: list[int]
    sequence: int
    tokens: list[int]
    logits: list[np.ndarray]
    bad_layer: list[int]


def generate(
    tiny: Tiny,
    prompts: list[list[int]],
    n_steps: int = 4,
    *,
    route: str = "scalar",
    raw: dict[str, bytes] | None = None,
) -> list[Request]:
    """Greedy answers of all prompts in one wave."""
    graph = tiny.build()
    with LanePool(2) as pool:
        weights = pack_weights(graph, raw or raw_weights(graph), pool)
        cache = KvCache(n_kv_layers=graph.n_kv_layers, heads=graph.heads, n_ctx=64, max_sequences=len(prompts))
        capacity = Capacity(32, len(prompts), len(prompts), cache.n_blocks)
        isa = available_routes()[route]
        with ReservedGraph(tiny.build, weights, capacity, pool=pool, route=isa) as reserved:
            batch = Batch(capacity, graph.n_vocab, cache.binding)
            requests = [Request(prompt, cache.open(), [], [], []) for prompt in prompts]
            for request in requests:
                first = cache.reserve(request.sequence, len(request.prompt))
                batch.add(request.prompt, first, request.sequence, outputs=Outputs.LAST)
            for _ in range(n_steps):
                reserved.compute(batch)
                take(batch, requests)
                batch.clear()
                for request in requests:
                    position = cache.reserve(request.sequence, 1)
                    batch.add_token(max(request.tokens[-1], 0), position, request.sequence)
            batch.close()
        cache.close()
        weights.close()
    return requests


def take(batch: Batch, requests: list[Request]) -> None:
    """Gives each request its output, and the first bad layer of its tokens."""
    for output, request in enumerate(requests):
        request.tokens.append(batch.argmax[output])
        request.logits.append(np.array(batch.logits(output)))
        mine = [t for t in range(batch.n_tokens) if batch.sequences[t] == request.sequence]
        request.bad_layer.append(batch.bad_layer[mine[-1]])


PROMPTS = [[3, 1, 4, 1, 5], [9], [2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6], [3, 1, 4, 1, 5]]


def test_a_wave_gives_every_request_its_solo_bits() -> None:
    wave = generate(TINY, PROMPTS)
    for request, prompt in zip(wave, PROMPTS, strict=True):
        (solo,) = generate(TINY, [prompt])
        assert solo.tokens == request.tokens
        assert all(np.array_equal(a, b) for a, b in zip(solo.logits, request.logits, strict=True))
    assert np.isfinite(wave[0].logits).all()
    assert wave[0].tokens == wave[3].tokens


@pytest.mark.parametrize("types", [(Q8,) * 8, (F32,) * 8, (Q8, F32) * 4])
def test_every_route_gives_the_same_bits(types: tuple[object, ...]) -> None:
    tiny = Tiny(types=types, head_dim=48, n_rot=16)  # type: ignore[arg-type]
    results = [generate(tiny, PROMPTS[:2], route=route) for route in available_routes()]
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            assert one.tokens == two.tokens
            assert all(np.array_equal(a, b) for a, b in zip(one.logits, two.logits, strict=True))


@pytest.mark.parametrize(
    ("weight", "layer"),
    [("0.down", 0), ("1.norm1", 1), ("1.v", 1), ("1.down", 1), ("2.o", 2), ("2.down", 2), ("embedding", 0)],
)
def test_a_value_that_is_not_finite_names_the_layer_it_came_from(weight: str, layer: int) -> None:
    raw = raw_weights(FLOAT.build())
    raw[weight] = NAN + raw[weight][4:]
    prompts = [[0, 1, 2]] if weight == "embedding" else [[3, 1, 4]]
    (request,) = generate(FLOAT, prompts, 1, raw=raw)
    assert (request.tokens, request.bad_layer) == ([-1], [layer])


def test_logits_that_alone_are_not_finite_have_no_layer() -> None:
    tiny = Tiny(n_layers=1, types=(F32,) * 8, is_tied=False)
    raw = raw_weights(tiny.build())
    raw["output"] = NAN + raw["output"][4:]
    (request,) = generate(tiny, [[3, 1, 4]], 1, raw=raw)
    assert (request.tokens, request.bad_layer) == ([-1], [-1])


def test_a_failed_request_takes_no_other_with_it() -> None:
    tiny = Tiny(n_layers=3, types=(F32,) * 8, is_tied=False)
    raw = raw_weights(tiny.build())
    at = 9 * 4 * tiny.d_model  # the embedding of token 9
    poisoned = {**raw, "embedding": raw["embedding"][:at] + NAN + raw["embedding"][at + 4 :]}
    bad, good = generate(tiny, [[3, 9, 4], [3, 1, 4]], 3, raw=poisoned)
    (alone,) = generate(tiny, [[3, 1, 4]], 3, raw=raw)
    assert bad.tokens[0] == -1
    assert bad.bad_layer[0] == 0
    assert good.bad_layer == [-1, -1, -1]
    assert good.tokens == alone.tokens
    assert all(np.array_equal(a, b) for a, b in zip(good.logits, alone.logits, strict=True))
