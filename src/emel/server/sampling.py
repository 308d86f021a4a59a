"""Sampling on the wire: EMEL's table of parameters, and the names other servers have for some of them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_type_hints

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, create_model

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


class Shape(BaseModel):
    """A request. Unknown fields are kept, to be named in the log; null is the same as not given."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    def unknown(self) -> list[str]:
        """Names of fields that mean nothing here."""
        return sorted(self.model_extra or ())


def _sampling_shape() -> type[Shape]:
    """One optional field for each parameter, described by the table; ranges are checked by the table as well."""
    hints = get_type_hints(SamplingParams)
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


class SamplingShape(_Sampling):  # type: ignore[misc]
    """The parameters every generating request has."""

    samplers: list[str] | str | None = None
    logit_bias: dict[str, float | bool] | list[tuple[int | str, float | bool]] | None = None
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
        if given.get("seed") == -1:
            del given["seed"]
        return given
