"""The chain against what llama.cpp's own samplers left of the same logits (data/README.md says how it was recorded)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emel.kernel.sampling import NativeSampler, Step

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "data/llama_samplers.json").read_text(encoding="utf-8"))
CASES = {f"{case['name']} {case['row']}": case for case in RECORDED["cases"]}
NEWLINE = 198
OFTEN = 0.03  # of 600 draws one is there but once in 10^8 times
BITS = 0.01  # of surprise: llama.cpp's sums are float32


@pytest.mark.parametrize("name", CASES)
def test_what_is_left_is_what_llama_cpp_leaves(name: str) -> None:
    case = CASES[name]
    expected = {int(token): value for token, value in case["probabilities"].items()}
    numbers = {name: value for name, value in case["parameters"].items() if name != "dry_sequence_breakers"}
    logits = np.array(RECORDED["rows"][case["row"]], np.float32)
    sampler = NativeSampler(
        len(logits),
        steps=list(Step),
        history=RECORDED["history"],
        breakers=[(NEWLINE,)] if "dry_sequence_breakers" in case["parameters"] else (),
        seed=1,
        **{"dry_base": 1.75, "dry_allowed_length": 2} | numbers,
    )
    surprises = {}
    for position in range(600):
        token = sampler.choose(logits.ctypes.data, position)
        surprises[token] = sampler.surprise
    assert {token for token, surprise in surprises.items() if surprise < 16} <= set(expected)
    assert {token for token, value in expected.items() if value >= OFTEN} <= set(surprises)
    for token in expected.keys() & surprises.keys():
        assert surprises[token] == pytest.approx(-np.log2(expected[token]), abs=BITS), token


def test_recorded_cases_change_what_they_are_about() -> None:
    """A step that did nothing would show nothing."""
    untouched = CASES["xtc_kept 0"]["probabilities"]
    same = [name for name, case in CASES.items() if name.endswith(" 0") and case["probabilities"] == untouched]
    assert same == ["xtc_kept 0"]
