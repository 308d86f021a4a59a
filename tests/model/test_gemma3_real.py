"""The real Gemma 3 270M ($EMEL_TEST_GEMMA3, or already fetched as `gemma3-270m`): the reference's own greedy text."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from emel.errors import EmelError
from model.conformance import Runner

RECORDED = json.loads((Path(__file__).parent / "data/gemma3_270m_greedy.json").read_text(encoding="utf-8"))


def gemma3_path() -> Path:
    if given := os.environ.get("EMEL_TEST_GEMMA3"):
        return Path(given)
    from emel.engine.models import FetchPolicy, resolve_model

    try:
        return resolve_model("gemma3-270m", FetchPolicy(offline=True))
    except EmelError:
        pytest.skip("gemma3-270m is not here: emel pull gemma3-270m")


@pytest.mark.slow
@pytest.mark.model
def test_gemma3_says_what_the_reference_says() -> None:
    with Runner(gemma3_path()) as runner:
        for entry in RECORDED["continuations"]:
            wanted = entry["reference_token_ids"]
            assert runner.greedy(entry["prompt_ids"], len(wanted)) == wanted, entry["prompt"]
