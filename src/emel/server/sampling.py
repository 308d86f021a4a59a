"""Sampling on the wire: EMEL's table of parameters, and the names other servers have for some of them."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, get_type_hints

from pydantic import AliasChoices, BeforeValidator, Field, StrictInt, create_model
from pydantic_core import PydanticCustomError

from emel.server.shape import Shape
from emel.text.sampling import SamplingParams

# Set by fields of their own, or by the engine.
_ELSEWHERE = frozenset({"n", "max_tokens", "logprobs", "logit_bias", "dry_breaker_ids", "samplers"})
# Keywords of Model.submit that are none of the sampler's, and those of it that have a shape of their own.
_OTHERS = ("samplers", "logit_bias", "stop", "max_tokens", "cache_prompt", "speculate", "priority")
# llama.cpp and vLLM
_OTHER_NAMES = {
    "repeat_penalty": "repetition_penalty",
    "typical_p": "typ_p",
    "dynatemp_exponent": "dynatemp_exp",
    "temperature": "temp",
}


def _sampling_shape() -> type[Shape]:
    """One optional field for each parameter, described by the table; ranges are checked by the table as well."""
    hints = {**get_type_hints(SamplingParams), "stop_token_ids": tuple[StrictInt, ...]}
    described: dict[str, Any] = {}
    for each in fields(SamplingParams):
        if each.name in _ELSEWHERE:
            continue
        kind = each.metadata["kind"]
        names = AliasChoices(each.name, _OTHER_NAMES[each.name]) if each.name in _OTHER_NAMES else None
        described[each.name] = (
            hints[each.name] | None,
            Field(None, validation_alias=names, description=f"{each.metadata['meaning']}; allowed: {kind.allowed}"),
        )
    return create_model("Sampling", __base__=Shape, **described)


_Sampling: Any = _sampling_shape()


def _check_biases(given: Any) -> Any:
    """Ends at the first that is none, as of a list."""
    if isinstance(given, dict):
        for token, bias in given.items():
            if not isinstance(bias, int | float):
                raise PydanticCustomError("bias_type", "the bias of {token} must be a number", {"token": token[:40]})
    return given


class SamplingShape(_Sampling):  # type: ignore[misc]
    """The parameters every generating request has."""

    samplers: list[str] | str | None = None
    logit_bias: (
        Annotated[dict[str, float | bool], BeforeValidator(_check_biases)]
        | list[tuple[StrictInt | str, float | bool]]
        | None
    ) = None
    stop: str | list[str] | None = None
    n: int | None = Field(None, ge=1, le=256)
    max_tokens: int | None = Field(None, ge=-1)
    cache_prompt: bool | None = None
    speculate: bool | None = Field(None, description="false: computes no guesses; the answer is the same")
    priority: int | None = None

    def sampling(self) -> dict[str, Any]:
        """Keywords for Model.submit: what was given, by EMEL's names."""
        given = {
            name: value for name in (*_Sampling.model_fields, *_OTHERS) if (value := getattr(self, name)) is not None
        }
        if given.get("max_tokens") == -1:  # until the end, as llama.cpp says it
            del given["max_tokens"]
        if given.get("top_k") == -1:  # all of them, as vLLM says it
            given["top_k"] = 0
        if given.get("temperature", 0) < 0:  # greedy, as llama.cpp says it
            given["temperature"] = 0.0
        if given.get("seed") == -1:
            del given["seed"]
        return given
