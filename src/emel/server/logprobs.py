"""Log probabilities on the wire: OpenAI's two shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emel.text.sampler import TokenLogprobs
    from emel.text.tokenizer import Tokenizer


def shown(tokenizer: Tokenizer, logprobs: Sequence[TokenLogprobs]) -> list[TokenLogprobs]:
    """Without those of tokens that have no text, as the one that ends an answer."""
    return [each for each in logprobs if not tokenizer.is_control(each.token) and each.token not in tokenizer.end_ids]


def chat_logprobs(tokenizer: Tokenizer, logprobs: Sequence[TokenLogprobs]) -> dict[str, Any]:
    """`choices[].logprobs` of a chat completion."""
    content = [
        {**_entry(tokenizer, each.token, each.logprob), "top_logprobs": [_entry(tokenizer, *pair) for pair in each.top]}
        for each in shown(tokenizer, logprobs)
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(tokenizer: Tokenizer, logprobs: Sequence[TokenLogprobs], offset: int) -> dict[str, Any]:
    """`choices[].logprobs` of a completion whose text so far has `offset` characters."""
    kept = shown(tokenizer, logprobs)
    texts = [_text(tokenizer.token_bytes(each.token)) for each in kept]
    offsets = []
    for text in texts:
        offsets.append(offset)
        offset += len(text)
    return {
        "tokens": texts,
        "token_logprobs": [each.logprob for each in kept],
        "top_logprobs": [
            {_text(tokenizer.token_bytes(token)): logprob for token, logprob in reversed(each.top)} for each in kept
        ],
        "text_offset": offsets,
    }


def _entry(tokenizer: Tokenizer, token: int, logprob: float) -> dict[str, Any]:
    data = tokenizer.token_bytes(token)
    return {"id": token, "token": _text(data), "bytes": list(data), "logprob": logprob}


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
