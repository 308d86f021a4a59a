"""Equal fingerprints, equal bits: whatever a model is loaded with either changes no bit, or is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import emel
from emel.errors import RequestError
from model.reference_error import IDS
from model.tiny_models import TINY_MODELS, write_tiny_model

if TYPE_CHECKING:
    from pathlib import Path

IDS_32 = [*IDS, *IDS][:32]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"kv_type": "f16"},
    {"kv_type": "f32"},
    {"kv_type": "q8_0"},
    {"activations": "int8"},
    {"activations": "int8", "kv_type": "q8_0"},
    {"n_ctx": 48},
    {"n_ctx": 64},
    {"n_ctx": 65},
    {"n_ctx": 0},
    {"n_lanes": 2, "prefix_bytes": 0},
    {"speculation": None},
    {"chat_template": "chatml"},
    {"overrides": {"phi3.rope.freq_base": 50000.0}},
    {"overrides": {"llama.rope.freq_base": 50000.0}},
    {"overrides": {"llama.attention.sliding_window": 4}},
    {"overrides": {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0}},
]


@pytest.fixture(scope="module")
def phi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """256 tokens of context, of which 64 are the original ones: it has factors of RoPE for both."""
    path = tmp_path_factory.mktemp("phi") / "phi3.gguf"
    write_tiny_model(path, TINY_MODELS["phi3"](), "Q8_0")
    return path


def fingerprint_and_bits(path: Path, **options: Any) -> tuple[str, bytes]:
    with emel.load(path, n_threads=1, **options) as model:
        return model.fingerprint, model.logits(IDS_32).tobytes()


@pytest.mark.parametrize("name", ["tiny_path", "phi"])
def test_equal_fingerprints_are_equal_bits(name: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(name)
    bits_of: dict[str, bytes] = {}
    for options in OPTIONS:
        fingerprint, bits = fingerprint_and_bits(path, **options)
        assert bits_of.setdefault(fingerprint, bits) == bits, options
    assert len(set(bits_of.values())) > 4


def test_fingerprints_name_what_is_not_usual(tiny_path: Path, phi: Path) -> None:
    usual, _ = fingerprint_and_bits(tiny_path)
    assert usual.count("-") == 2
    assert fingerprint_and_bits(tiny_path, kv_type="f16")[0] == usual
    assert fingerprint_and_bits(tiny_path, kv_type="q8_0")[0] == usual.replace("emel-1-", "emel-1-q8_0-")
    both, _ = fingerprint_and_bits(tiny_path, kv_type="f32", activations="int8")
    assert both == usual.replace("emel-1-", "emel-1-int8-f32-")
    short, _ = fingerprint_and_bits(phi, n_ctx=64)
    assert fingerprint_and_bits(phi)[0] == short.replace("emel-1-", "emel-1-long-")


def test_a_session_of_a_longer_context_is_refused_where_it_has_other_factors(phi: Path, tmp_path: Path) -> None:
    with emel.load(phi, n_threads=1) as long:
        long.save_session(tmp_path / "s", IDS_32)
    with (
        emel.load(phi, n_threads=1, n_ctx=64) as short,
        pytest.raises(RequestError, match="or other activations or a longer context"),
    ):
        short.load_session(tmp_path / "s")
