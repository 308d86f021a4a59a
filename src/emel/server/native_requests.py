"""Requests to /completion, as llama.cpp's server takes them."""

from __future__ import annotations

from typing import Any

from pydantic import Field, StrictInt

from emel.server.errors import invalid
from emel.server.shapes import ConstrainedShape


class NativeRequest(ConstrainedShape):
    """POST /completion."""

    prompt: str | list[StrictInt | str] = Field(description="a text, token ids, or both beside each other")
    n_predict: int | None = Field(None, ge=-1, description="the same as max_tokens")
    n_probs: int | None = Field(None, ge=0, le=20, description="others that are told for each token")
    post_sampling_probs: bool | None = None
    return_tokens: bool | None = None

    def check(self) -> None:
        """ApiError 400 for what is not supported."""
        if isinstance(self.prompt, list) and len(self.prompt) > 1 and all(isinstance(p, str) for p in self.prompt):
            raise invalid("several prompts are not supported here: ask /v1/completions, or give one", "prompt")
        if self.post_sampling_probs:
            raise invalid(
                "post_sampling_probs is not supported: what is told is before sampling", "post_sampling_probs"
            )
        if self.n not in (None, 1):
            raise invalid(f"n is {self.n}: /completion gives one answer, /v1/completions several", "n")

    def sampling(self) -> dict[str, Any]:
        """Keywords for Model.submit."""
        given = super().sampling()
        if self.n_predict is not None and self.n_predict >= 0:
            given["max_tokens"] = self.n_predict
        if self.n_probs:
            given["logprobs"] = self.n_probs
        return given
