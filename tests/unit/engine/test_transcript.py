"""Transcripts: recorded, read back, replayed bit for bit, and refused when they are none."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import emel
from emel.engine.transcript import Difference, Step, Transcript, digest_of, record, replay
from emel.errors import RequestError

if TYPE_CHECKING:
    from pathlib import Path

    from emel.engine.model import Model


def recorded(model: Model, **sampling: Any) -> Transcript:
    ids = model.tokenize("ab")
    completion = model.generate_ids(ids, max_tokens=6, digests=True, **sampling)
    return record(model, ids, completion, is_constrained=False)


@pytest.mark.parametrize(
    "sampling",
    [{"temperature": 0}, {"seed": 7, "temperature": 1.5}, {"logit_bias": {3: 4.0, 5: False}, "repeat_penalty": 1.3}],
)
def test_a_replay_is_equal_to_the_bit(model: Model, sampling: dict[str, Any]) -> None:
    transcript = recorded(model, **sampling)
    assert len(transcript.steps) > 1
    assert replay(model, transcript) is None
    read = Transcript.from_json(json.loads(json.dumps({"id": "x", "transcript": transcript.to_json()})))
    assert read == transcript
    assert replay(model, read) is None


def test_constrained_steps_are_replayed_over_the_recorded_tokens(model: Model) -> None:
    transcript = replace(recorded(model, seed=1, temperature=2), is_constrained=True)
    assert replay(model, transcript) is None


@pytest.mark.parametrize("is_constrained", [False, True])
def test_the_first_step_that_differs_is_told(model: Model, is_constrained: bool) -> None:
    transcript = replace(recorded(model, temperature=0), is_constrained=is_constrained)
    steps = list(transcript.steps)
    steps[2] = Step(steps[2].token, "0" * 16)
    found = replay(model, replace(transcript, steps=tuple(steps)))
    assert found == Difference(2, steps[2], transcript.steps[2])


def test_a_transcript_of_another_model_is_refused(model: Model) -> None:
    with pytest.raises(RequestError, match="the transcript is of emel-9-x, the model is emel-"):
        replay(model, replace(recorded(model), fingerprint="emel-9-x"))


def test_a_transcript_of_the_same_model_computed_otherwise_is_told_apart(model: Model) -> None:
    other = model.fingerprint.replace("emel-1-", "emel-1-q8_0-")
    with pytest.raises(RequestError, match="the same model with other activations, kv_type or context"):
        replay(model, replace(recorded(model), fingerprint=other))


def test_a_transcript_says_what_the_model_was_loaded_with(tiny_path: Path) -> None:
    with emel.load(tiny_path, n_ctx=64, n_threads=1, kv_type="q8_0", activations="int8") as model:
        told = recorded(model).to_json()
    assert (told["activations"], told["kv_type"], told["n_ctx"]) == ("int8", "q8_0", 64)


def test_transcripts_from_before_they_said_so_are_read_and_replayed(model: Model) -> None:
    told = recorded(model, temperature=0).to_json()
    for key in ("activations", "kv_type", "n_ctx"):
        del told[key]
    read = Transcript.from_json(told)
    assert (read.activations, read.kv_type, read.n_ctx) == (None, None, None)
    assert replay(model, read) is None


def test_digests_are_the_logits(model: Model) -> None:
    transcript = recorded(model, temperature=0)
    first = model.logits(transcript.prompt_ids)[-1]
    assert transcript.steps[0].digest == digest_of(first)
    assert transcript.steps[0].token == int(first.argmax())


def test_an_answer_without_digests_is_no_transcript(model: Model) -> None:
    ids = model.tokenize("ab")
    with pytest.raises(RequestError, match="ask for them with digests=True"):
        record(model, ids, model.generate_ids(ids, max_tokens=1), is_constrained=False)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ([], "this is no transcript"),
        ({"steps": 1}, "this is no transcript"),
        ({"steps": [], "version": 2}, "the transcript has version 2: this EMEL reads version 1"),
        ({"steps": [], "version": 1}, "the transcript is damaged"),
        ({"steps": [[1]], "version": 1, "fingerprint": "x", "prompt_ids": [], "sampling": {}}, "damaged"),
        (
            {"steps": [["a", "b"]], "version": 1, "fingerprint": "x", "prompt_ids": [1], "sampling": {}}
            | {"is_constrained": False, "finish_reason": "stop"},
            "^the transcript is damaged: a token is 'a': it must be a whole number$",
        ),
        (
            {"steps": [], "version": 1, "fingerprint": "x", "prompt_ids": [], "sampling": {}}
            | {"is_constrained": True, "finish_reason": "stop"},
            "^the transcript is damaged: its prompt has no tokens$",
        ),
    ],
)
def test_what_is_no_transcript_is_refused(given: Any, reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        Transcript.from_json(given)


@pytest.mark.parametrize(
    ("sampling", "reason"),
    [({"min_tokens": "x"}, "min_tokens is 'x': it must be a whole number"), ({"foo": 1}, "unknown sampling parameter")],
)
def test_sampling_that_no_request_has_is_refused(sampling: dict[str, Any], reason: str, model: Model) -> None:
    with pytest.raises(RequestError, match=reason):
        replay(model, replace(recorded(model, temperature=0), sampling=sampling))


def test_keywords_in_a_transcript_do_not_decide_how_it_is_replayed(model: Model) -> None:
    transcript = recorded(model, temperature=0)
    assert replay(model, replace(transcript, sampling={**transcript.sampling, "digests": False, "n": 3})) is None
