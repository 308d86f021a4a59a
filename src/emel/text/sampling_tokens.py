"""Sampling parameters that name tokens by their text, for one tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from emel.text.errors import shown
from emel.text.sampling_fields import SamplingError, check_length

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emel.text.sampling import SamplingParams
    from emel.text.tokenizer import Tokenizer

_LONGEST_TAIL = 20  # tokens of a breaker after its first, as llama.cpp has it: the search for it stays short
_MOST_DIGITS = 19  # of an id: those of 64 bits
_MOST_BIASED_TEXTS = 1024  # each is tokenized, which takes some tens of microseconds
_LONGEST_TOKEN = 1024  # characters of a text that is to be one token
_MOST_KEPT = 1024  # texts of breakers whose tokens are known

Breakers = tuple[tuple[int, ...], ...]
_found: WeakKeyDictionary[Tokenizer, dict[str, Breakers]] = WeakKeyDictionary()


def biases_by_id(biases: object, tokenizer: Tokenizer) -> object:
    """A `logit_bias` with ids in place of texts; what is neither is left for SamplingParams to refuse.

    A dict is OpenAI's: keys of digits are ids. In a list of pairs, as llama.cpp's, every text is a text. SamplingError
    for a text that is not exactly one token.
    """
    if isinstance(biases, Mapping | list | tuple):
        _check_texts(biases)
    if isinstance(biases, Mapping):
        return [(_id_of(_number_in(key), tokenizer), bias) for key, bias in biases.items()]
    if not isinstance(biases, Iterable) or isinstance(biases, str | bytes):
        return biases
    return [(_id_of(pair[0], tokenizer), pair[1]) if _is_pair(pair) else pair for pair in biases]


def _check_texts(biases: Mapping[Any, Any] | Sequence[Any]) -> None:
    check_length("logit_bias", biases)
    keys = map(_number_in, biases) if isinstance(biases, Mapping) else (pair[0] for pair in biases if _is_pair(pair))
    texts = [key for key in keys if isinstance(key, str)]
    if len(texts) > _MOST_BIASED_TEXTS:
        raise SamplingError("logit_bias", f"{len(texts)} texts", f"at most {_MOST_BIASED_TEXTS}, and any token ids")
    for text in texts:
        if len(text) > _LONGEST_TOKEN:
            raise SamplingError("logit_bias", text, f"token ids, and texts of at most {_LONGEST_TOKEN} characters")


def _is_pair(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2


def with_breakers(params: SamplingParams, tokenizer: Tokenizer) -> SamplingParams:
    """The same with the tokens of its DRY sequence breakers, if DRY is on."""
    if params.dry_multiplier == 0 or "dry" not in params.samplers or not params.dry_sequence_breakers:
        return params
    known = _found.get(tokenizer, {})
    found = {
        text: known[text] if text in known else find_breakers(tokenizer, text) for text in params.dry_sequence_breakers
    }
    _found[tokenizer] = found if len(known) > _MOST_KEPT else known | found  # anew: other threads read the old one
    ids = {each for breakers in found.values() for each in breakers}
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
        found += [(token, *tail) for n, tail in enumerate(tails[: len(data)], 1) if data.endswith(breaker[:n])]
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
