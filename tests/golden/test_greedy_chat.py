"""Twenty chats with the real small model: the float64 reference's own tokens, and a text without debris.

The reference's verdicts are recorded (record_greedy_chat.py); where its two best tokens are nearer to each other than
EMEL's error, either may come.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

import emel
from golden.record_greedy_chat import N_TOKENS, PROMPTS

pytestmark = [pytest.mark.model, pytest.mark.slow]

DATA = Path(__file__).parent / "data"
DEBRIS = re.compile(r"<\|?[a-z_]+\|?>|\[/?INST\]|\ufffd|^\s*(assistant|model|user)\s*$", re.MULTILINE)
"""Control tokens of any template, broken characters, and a line that is nothing but a role."""


def recorded(path: Path) -> list[dict[str, Any]]:
    found = json.loads((DATA / "greedy_chat_smollm2.json").read_text(encoding="utf-8"))
    if hashlib.sha256(path.read_bytes()).hexdigest() != found["model_sha256"]:
        pytest.skip(f"{path} is another file than the recorded one")
    answers: list[dict[str, Any]] = found["answers"]
    return answers


def test_answers_are_those_of_the_reference_wherever_its_margin_exceeds_the_error(smollm2_path: Path) -> None:
    answers = recorded(smollm2_path)
    assert [each["prompt"] for each in answers] == list(PROMPTS)
    chats = [[{"role": "user", "content": prompt}] for prompt in PROMPTS]
    with emel.load(smollm2_path, n_ctx=256) as model:
        found = [model.chat(chat, max_tokens=N_TOKENS, temperature=0) for chat in chats]
    for answer, entry in zip(found, answers, strict=True):
        assert list(answer.token_ids) == entry["token_ids"], entry["prompt"]
        assert not DEBRIS.search(answer.text), answer.text
    differing = [
        (entry["prompt"], index)
        for entry in answers
        for index, token in enumerate(entry["token_ids"])
        if token != entry["reference_token_ids"][index] and entry["margins"][index] > entry["errors"][index]
    ]
    assert not differing


def test_answers_do_not_go_round_in_circles(smollm2_path: Path) -> None:
    """No run of five tokens comes three times in the 32 of an answer."""
    for entry in recorded(smollm2_path):
        ids = entry["token_ids"]
        runs = [tuple(ids[at : at + 5]) for at in range(len(ids) - 4)]
        assert all(runs.count(run) < 3 for run in runs), entry["text"]
