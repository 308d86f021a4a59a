"""Sampling parameters that name tokens by their text, for one tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from emel.text.errors import shown
from emel.text.sampling_fields import SamplingError

if TYPE_CHECKING:
    from emel.text.sampling import SamplingParams
    from emel.text.tokenizer import Tokenizer

_LONGEST_TAIL = 20  # tokens of a breaker after its first, as llama.cpp has it: the search for it stays short
_MOST_DIGITS = 19  # of an id: those of 64 bits

Breakers = tuple[tuple[int, ...], ...]
_found: WeakKeyDictionary[Tokenizer, dict[str, Breakers]] = WeakKeyDictionary()


def biases_by_id(biases: object, tokenizer: Tokenizer) -> object:
    """A `logit_bias` with ids in place of texts; what is neither is left for SamplingParams to refuse.

    A dict is OpenAI's: keys of digits are ids. In a list of pairs, as llama.cpp's, every text is a text. SamplingError
    for a text that is not exactly one token.
    """
    if isinstance(biases, Mapping):
        return [(_id_of(_number_in(key), tokenizer), bias) for key, bias in biases.items()]
    if not isinstance(biases, Iterable) or isinstance(biases, str | bytes):
        return biases
    return [
        (_id_of(pair[0], tokenizer), pair[1]) if isinstance(pair, list | tuple) and len(pair) == 2 else pair
        for pair in biases
    ]


def with_breakers(params: SamplingParams, tokenizer: Tokenizer) -> SamplingParams:
    """The same with the tokens of its DRY sequence breakers, if DRY is on."""
    if params.dry_multiplier == 0 or "dry" not in params.samplers or not params.dry_sequence_breakers:
        return params
    known = _found.setdefault(tokenizer, {})
    for text in params.dry_sequence_breakers:
        if text not in known:
            known[text] = find_breakers(tokenizer, text)
    ids = {each for text in params.dry_sequence_breakers for each in known[text]}
    return replace(params, dry_breaker_ids=tuple(sorted(ids)))


def find_breakers(tokenizer: Tokenizer, text: str) -> Breakers:
    """Every way tokens spell a text: a token that has it inside, or one that ends with its beginning, then the rest."""
    breaker = text.encode("utf-8", "surrogateescape")
    found: list[tuple[int, ...]] = []
    tails = [
        tuple(tokenizer.encode(breaker[n:], add_special=False, parse_special=False)[:_LONGEST_TAIL])
        for n in range(1, len(breaker))
    ]
    for token in range(tokenizer.n_vocab):
        data = tokenizer.token_bytes(token)
        if breaker in data:
            found.append((token,))
            continue
        found += [(token, *tail) for n, tail in enumerate(tails, 1) if data.endswith(breaker[:n])]
    return tuple(found)


def _number_in(key: Any) -> Any:
    is_id = isinstance(key, str) and key.isascii() and key.isdigit() and len(key) <= _MOST_DIGITS
    return int(key) if is_id else key


def _id_of(token: Any, tokenizer: Tokenizer) -> Any:
    if not isinstance(token, str):
        return token
    ids = tokenizer.encode(token, add_special=False, parse_special=True)
    if len(ids) != 1:
        allowed = f"token ids, and texts that are one token: this is {len(ids)} {shown(ids)}"
        raise SamplingError("logit_bias", token, allowed)
    return ids[0]
