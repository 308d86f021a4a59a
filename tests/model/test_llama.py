"""Tiny llama models of every format and awkward geometry: right against float64, and the same bits however they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

import emel
from emel.kernel.features import available_routes
from model.tiny_llama import Geometry, write_tiny_llama
from reference.error import disputed_positions, relative_rms_error
from reference.llama import greedy_continuation, reference_logits
from reference.weights import Weights

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

FLOATS = ("F32", "F16", "BF16")
BLOCKS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4",
          "TQ1_0", "TQ2_0")  # fmt: skip
TOLERANCE = dict.fromkeys(FLOATS, 0.002) | dict.fromkeys(BLOCKS, 0.01)
"""Relative RMS error of the logits. Block formats meet rounded activations, the others only the float16 KV cache."""

WIDE = Geometry(d_model=256, d_ff=512)  # of super blocks

N_TOKENS = 40  # two and a half KV blocks


@dataclass(frozen=True, slots=True)
class Case:
    """A model and what its float32 logits are, computed once."""

    path: Path
    weight_type: str
    token_ids: list[int]
    logits: NDArray[np.float32]


CASES = {
    "q4_0": ("Q4_0", Geometry()),
    "q4_1": ("Q4_1", Geometry()),
    "q8_0": ("Q8_0", Geometry()),
    "f16": ("F16", Geometry()),
    "f32": ("F32", Geometry()),
    **{name.lower(): (name, Geometry()) for name in ("BF16", "Q5_0", "Q5_1", "IQ4_NL", "MXFP4")},
    **{name.lower(): (name, WIDE) for name in ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "TQ1_0", "TQ2_0")},
    "q4_k-embedding-q6_k": ("Q4_K", Geometry(d_model=256, d_ff=256, embedding_type="Q6_K", tied=False)),
    "q4_1-embedding-q8_0": ("Q4_1", Geometry(embedding_type="Q8_0")),
    "one-layer-untied": ("Q4_0", Geometry(n_layers=1, tied=False)),
    "head-dim-128": ("Q8_0", Geometry(head_dim=128, n_heads=2, n_kv_heads=1)),
    "head-dim-80": ("Q4_1", Geometry(head_dim=80, n_heads=4, n_kv_heads=1)),
    "rows-not-multiple-of-16": ("Q4_0", Geometry(head_dim=72, n_heads=4, n_kv_heads=1)),
    "columns-not-multiple-of-32": ("F16", Geometry(d_model=100, head_dim=72, n_heads=3, n_kv_heads=3, d_ff=104)),
    "vocab-not-multiple-of-16": ("Q8_0", Geometry(n_vocab=301, tied=False)),
    "one-head": ("F32", Geometry(n_heads=1, n_kv_heads=1, n_vocab=259)),
    "biases": ("Q4_1", Geometry(biases=True, tied=False)),
    "rope-factors": ("Q8_0", Geometry(rope_factors=True)),
    "rope-linear-scaling": ("F32", Geometry(rope_scale=4.0)),
}


def write_case(folder: Path, name: str) -> Path:
    weight_type, geometry = CASES[name]
    path = folder / f"{name}.gguf"
    write_tiny_llama(path, geometry, weight_type)
    return path


def random_ids(n_tokens: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(1).integers(1, 257, n_tokens)]


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    path = write_case(tmp_path_factory.mktemp("tiny"), request.param)
    token_ids = random_ids(N_TOKENS)
    with emel.load(path, n_threads=2) as model:
        logits = model.logits(token_ids)
    return Case(path, CASES[request.param][0], token_ids, logits)


def test_logits_are_within_the_tolerance_of_the_format(case: Case) -> None:
    expected = reference_logits(case.path, case.token_ids)
    assert case.logits.shape == expected.shape
    assert case.logits.dtype == np.float32
    errors = relative_rms_error(case.logits, expected)
    tolerance = TOLERANCE[case.weight_type]
    assert errors.max() < tolerance, f"position {errors.argmax()}: {errors.max():.3%}"
    assert disputed_positions(case.logits, expected, 4 * tolerance) == []


def test_logits_are_the_same_bits_for_every_prefill_chunk(case: Case) -> None:
    with emel.load(case.path, n_threads=2) as model:
        for chunk in (1, 7, 16, N_TOKENS - 1, N_TOKENS, 1000):
            assert np.array_equal(model.logits(case.token_ids, chunk=chunk), case.logits), f"chunk {chunk}"


def test_logits_are_the_same_bits_for_every_thread_count(case: Case) -> None:
    for n_threads in (1, 3, 5, 8):
        with emel.load(case.path, n_threads=n_threads) as model:
            assert np.array_equal(model.logits(case.token_ids), case.logits), f"{n_threads} threads"


@pytest.mark.parametrize("isa", available_routes())
def test_logits_are_the_same_bits_on_every_route(case: Case, isa: str) -> None:
    for n_threads in (1, 2):
        with emel.load(case.path, n_threads=n_threads, isa=isa) as model:
            assert np.array_equal(model.logits(case.token_ids), case.logits), f"{n_threads} threads"


def test_logits_of_a_prefix_are_the_first_rows(case: Case) -> None:
    with emel.load(case.path, n_threads=2) as model:
        for n_tokens in (1, 2, 15, 16, 17):
            assert np.array_equal(model.logits(case.token_ids[:n_tokens]), case.logits[:n_tokens]), n_tokens


def test_greedy_ids_follow_the_logits(case: Case) -> None:
    """Decoding token by token says what the logits of the finished text say."""
    prompt = case.token_ids[:20]
    with emel.load(case.path, n_threads=2) as model:
        tokens = list(model.generate_ids(prompt, temperature=0, max_tokens=24).token_ids)
        assert tokens
        logits = model.logits([*prompt, *tokens[:-1]])[len(prompt) - 1 :]
    assert logits.argmax(axis=-1).tolist() == tokens


@pytest.mark.slow
def test_logits_past_a_chunk_of_attention_are_right_and_the_same_bits(tmp_path: Path) -> None:
    """300 tokens cross the border at 256 keys, where partial results of attention are joined."""
    path = write_case(tmp_path, "one-layer-untied")
    token_ids = random_ids(300)
    with emel.load(path, n_threads=2) as model:
        logits = model.logits(token_ids)
        for chunk in (1, 100, 255, 256, 257):
            assert np.array_equal(model.logits(token_ids, chunk=chunk), logits), f"chunk {chunk}"
    errors = relative_rms_error(logits, reference_logits(path, token_ids))
    assert errors.max() < TOLERANCE["Q4_0"], f"position {errors.argmax()}: {errors.max():.3%}"
    for isa in available_routes():
        with emel.load(path, n_threads=3, isa=isa) as model:
            assert np.array_equal(model.logits(token_ids), logits), isa


def test_reference_continues_a_prompt_as_its_own_logits_say(tmp_path: Path) -> None:
    """Guards the reference itself: step by step equals all at once."""
    weights = Weights(write_case(tmp_path, "f32"))
    prompt = random_ids(5)
    steps = greedy_continuation(weights, prompt, 6)
    tokens = [step.token for step in steps]
    logits = reference_logits(tmp_path / "f32.gguf", [*prompt, *tokens[:-1]])
    assert logits[len(prompt) - 1 :].argmax(axis=-1).tolist() == tokens
    assert all(step.margin >= 0 for step in steps)
