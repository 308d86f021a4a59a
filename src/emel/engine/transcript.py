"""Transcripts: what a request was and what came of it, step by step, so that any machine can say whether it agrees.

    {"version": 1, "fingerprint": "emel-1-...", "prompt_ids": [...], "sampling": {...}, "is_constrained": false,
     "finish_reason": "stop", "steps": [[token, "digest of the step's logits"], ...],
     "activations": "int16", "kv_type": "f16", "n_ctx": 4096}

The last three are what the model was loaded with; older transcripts have none of them.

A replay computes the same steps anew: with the recorded parameters and seed, or, where a grammar decided too, over the
recorded tokens. Equal digests are equal bits of every logit.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from emel.engine.arguments import checked_whole
from emel.errors import RequestError
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

    from emel.engine.model import Model
    from emel.engine.results import Completion

VERSION = 1


@dataclass(frozen=True, slots=True)
class Step:
    """A token that was chosen, and the digest of the logits it was chosen from."""

    token: int
    digest: str


@dataclass(frozen=True, slots=True)
class Difference:
    """The first step that a replay did otherwise; `got` is None where it ended before."""

    index: int
    wanted: Step
    got: Step | None


@dataclass(frozen=True, slots=True)
class Transcript:
    """A recorded request. See the file's header."""

    fingerprint: str
    prompt_ids: tuple[int, ...]
    sampling: dict[str, Any]
    is_constrained: bool
    finish_reason: str
    steps: tuple[Step, ...]
    activations: str | None = None
    kv_type: str | None = None
    n_ctx: int | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        told = asdict(self)
        told["steps"] = [[step.token, step.digest] for step in self.steps]
        return {"version": VERSION, **told}

    @classmethod
    def from_json(cls, given: Any) -> Transcript:
        """Reads what `to_json` wrote, also out of a whole response; RequestError when it is no transcript."""
        if isinstance(given, dict) and "steps" not in given and isinstance(given.get("transcript"), dict):
            given = given["transcript"]
        if not isinstance(given, dict) or not isinstance(given.get("steps"), list):
            raise RequestError("this is no transcript: an object with steps is needed, or a response that has one")
        if given.get("version") != VERSION:
            raise RequestError(
                f"the transcript has version {given.get('version')!r}: this EMEL reads version {VERSION}"
            )
        try:
            told = cls(
                fingerprint=str(given["fingerprint"]),
                prompt_ids=tuple(checked_whole(each, "a prompt id") for each in given["prompt_ids"]),
                sampling=dict(given["sampling"]),
                is_constrained=bool(given["is_constrained"]),
                finish_reason=str(given["finish_reason"]),
                steps=tuple(Step(checked_whole(token, "a token"), str(digest)) for token, digest in given["steps"]),
                activations=_name_in(given, "activations"),
                kv_type=_name_in(given, "kv_type"),
                n_ctx=None if given.get("n_ctx") is None else checked_whole(given["n_ctx"], "n_ctx"),
            )
        except RequestError as error:
            raise RequestError(f"the transcript is damaged: {error}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise RequestError(f"the transcript is damaged: {error!r}") from error
        if not told.prompt_ids:
            raise RequestError("the transcript is damaged: its prompt has no tokens")
        return told


def _name_in(given: dict[str, Any], key: str) -> str | None:
    return None if given.get(key) is None else str(given[key])


def digest_of(logits: Buffer) -> str:
    """16 hexadecimal digits of logits, little-endian float32 in memory."""
    from hashlib import blake2b  # OpenSSL, which only digests need

    return blake2b(logits, digest_size=8).hexdigest()


def record(model: Model, prompt_ids: Sequence[int], completion: Completion, *, is_constrained: bool) -> Transcript:
    """The transcript of an answer whose request asked for digests."""
    if completion.digests is None:
        raise RequestError("this answer has no digests: ask for them with digests=True")
    steps = tuple(map(Step, completion.token_ids, completion.digests))
    sampling = {**completion.sampling, "seed": completion.seed}
    return Transcript(
        fingerprint=model.fingerprint,
        prompt_ids=tuple(prompt_ids),
        sampling=sampling,
        is_constrained=is_constrained,
        finish_reason=completion.finish_reason,
        steps=steps,
        activations=model.activations,
        kv_type=model.engine.kv_type,
        n_ctx=model.engine.n_ctx_asked,
    )


def replay(model: Model, transcript: Transcript) -> Difference | None:
    """Computes the steps anew: the first that differs, or None. RequestError for a transcript of another model."""
    _check_fingerprint(transcript.fingerprint, model.fingerprint)
    got = _forced(model, transcript) if transcript.is_constrained else _replayed(model, transcript)
    for index, wanted in enumerate(transcript.steps):
        if index >= len(got) or got[index] != wanted:
            return Difference(index, wanted, got[index] if index < len(got) else None)
    return None


def _check_fingerprint(wanted: str, ours: str) -> None:
    if wanted == ours:
        return
    seen = f"the transcript is of {wanted}, the model is {ours}"
    if wanted.rpartition("-")[2] != ours.rpartition("-")[2]:
        raise RequestError(
            f"{seen}: that is another model, or it has other adapters or overridden metadata",
            hint="give -m, --lora and --override-kv as the server had them",
        )
    raise RequestError(
        f"{seen}: the same model with other activations, kv_type or context, or another version of the arithmetic",
        hint="leave --activations, --kv-type and -c to the transcript; for an old one give them as the server had them",
    )


def _replayed(model: Model, transcript: Transcript) -> list[Step]:
    """The steps of a request with the same parameters and seed."""
    n = len(transcript.steps)
    if not n:
        return []
    n_least = checked_whole(transcript.sampling.get("min_tokens", 0), "min_tokens")
    own = {"n": 1, "logprobs": None, "max_tokens": n, "min_tokens": min(n, n_least), "digests": True}
    completion = model.generate_ids(transcript.prompt_ids, **{**transcript.sampling, **own})
    assert completion.digests is not None
    return list(map(Step, completion.token_ids, completion.digests))


def _forced(model: Model, transcript: Transcript) -> list[Step]:
    """The logits before each recorded token; the tokens themselves are taken as they are."""
    tokens = [step.token for step in transcript.steps]
    if not tokens:
        return []
    logits = model.logits([*transcript.prompt_ids, *tokens[:-1]])[len(transcript.prompt_ids) - 1 :]
    return [Step(token, digest_of(row)) for token, row in zip(tokens, logits, strict=True)]
