"""Twenty chats with each of the real models: the float64 reference's own tokens, and a text without debris.

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
from model.test_gemma3_real import gemma3_path

pytestmark = [pytest.mark.model, pytest.mark.slow]

DATA = Path(__file__).parent / "data"
DEBRIS = re.compile(r"<\|?[a-z_]+\|?>|\[/?INST\]|\ufffd|^\s*(assistant|model|user)\s*$", re.MULTILINE)
"""Control tokens of any template, broken characters, and a line that is nothing but a role."""


def recorded(name: str, path: Path) -> list[dict[str, Any]]:
    found = json.loads((DATA / f"greedy_chat_{name}.json").read_text(encoding="utf-8"))
    if hashlib.sha256(path.read_bytes()).hexdigest() != found["model_sha256"]:
        pytest.skip(f"{path} is another file than the recorded one")
    answers: list[dict[str, Any]] = found["answers"]
    return answers


def check(answers: list[dict[str, Any]], path: Path) -> list[str]:
    """The texts, once they are the recorded tokens, and those the reference's."""
    assert [each["prompt"] for each in answers] == list(PROMPTS)
    with emel.load(path, n_ctx=256) as model:
        chats = [[{"role": "user", "content": prompt}] for prompt in PROMPTS]
        found = [model.chat(chat, max_tokens=N_TOKENS, temperature=0) for chat in chats]
    for answer, entry in zip(found, answers, strict=True):
        assert list(answer.token_ids) == entry["token_ids"], entry["prompt"]
    differing = [
        (entry["prompt"], index)
        for entry in answers
        for index, token in enumerate(entry["token_ids"])
        if token != entry["reference_token_ids"][index] and entry["margins"][index] > entry["errors"][index]
    ]
    assert not differing
    return [answer.text for answer in found]


def test_smollm2_answers_as_the_reference_does_and_without_debris(smollm2_path: Path) -> None:
    for text in check(recorded("smollm2", smollm2_path), smollm2_path):
        assert not DEBRIS.search(text), text


def test_gemma3_answers_as_the_reference_does() -> None:
    """It is not trained to chat: it repeats the question, and so does the reference."""
    path = gemma3_path()
    check(recorded("gemma3", path), path)


def test_smollm2_does_not_go_round_in_circles(smollm2_path: Path) -> None:
    """No run of five tokens comes three times in the 32 of an answer."""
    for entry in recorded("smollm2", smollm2_path):
        ids = entry["token_ids"]
        runs = [tuple(ids[at : at + 5]) for at in range(len(ids) - 4)]
        assert all(runs.count(run) < 3 for run in runs), entry["text"]
