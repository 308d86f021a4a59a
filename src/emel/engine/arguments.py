"""What callers hand to the API, checked: plain values come out, RequestError says what is wrong with others."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from emel.errors import RequestError
from emel.kernel.sizes import KV_TYPES
from emel.text.errors import shown
from emel.text.sampling import SamplingError, SamplingParams
from emel.text.sampling_fields import Number
from emel.text.sampling_tokens import biases_by_id, with_breakers
from emel.text.stop_strings import StopStrings
from emel.text.waiting import MAX_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emel.tensor.types import TensorType
    from emel.text.tokenizer import Tokenizer

_MOST_BITS = 64
_KEYWORDS = ("cache_prompt", "priority", "new_constraint", "shown_controls", "digests", "speculate")
_KEYWORDS_OF_USERS = ("cache_prompt", "priority", "speculate")
CONSTRAINTS = ("json_schema", "grammar", "regex", "choice")
MAX_STOP_CHARACTERS = 1 << 17
"""In all stop strings of a request: what finds them takes about a microsecond to make for each."""
SPECULATIONS = ("lookup",)
SAMPLING_FIELDS = frozenset(each.name for each in fields(SamplingParams)) - {"dry_breaker_ids"}
KEYWORDS_OF_REQUESTS = SAMPLING_FIELDS | {"stop", *CONSTRAINTS, *_KEYWORDS_OF_USERS}
_WHOLE_FIELDS = [
    each.name
    for each in fields(SamplingParams)
    if isinstance(each.metadata["kind"], Number) and each.metadata["kind"].kind is int
]


def checked_model(model: object) -> str:
    """The name or path of a model, as text."""
    if isinstance(model, str | os.PathLike):
        name = os.fspath(model)
        if isinstance(name, str):
            return name
    raise RequestError(f"the model is {shown(model)}: it must be a name or a path (a str or pathlib.Path)")


def checked_path(path: object) -> str:
    """The path of a file, as text."""
    if isinstance(path, str | os.PathLike) and isinstance(name := os.fspath(path), str):
        return name
    raise RequestError(f"the path is {shown(path)}: it must be a str or pathlib.Path")


def checked_count(value: object, name: str) -> int:
    """A whole number from 0 up."""
    count = checked_whole(value, name)
    if count < 0:
        raise RequestError(f"{name} is {count}: it must be 0 or more")
    return count


def checked_text(text: object, name: str = "the prompt") -> str | bytes:
    """A str or bytes."""
    if isinstance(text, str | bytes):
        return text
    raise RequestError(f"{name} is {shown(text)}: it must be a str (or bytes)", hint=_method_for(text))


def _method_for(prompt: object) -> str | None:
    """What takes a prompt that is no text."""
    first = prompt[0] if isinstance(prompt, list | tuple) and prompt else None
    if isinstance(first, str):
        return "model.generate_many takes several prompts"
    if isinstance(first, Mapping):
        return "model.chat takes messages, model.chat_many several conversations"
    return "model.generate_ids takes token ids" if isinstance(first, int) else None


def checked_whole(value: object, name: str) -> int:
    """A whole number of any library; not a bool, not a str, not a float."""
    if not isinstance(value, bool):
        try:
            whole = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            pass
        else:
            if whole.bit_length() > _MOST_BITS:
                raise RequestError(f"{name} is {shown(value)}: it must have at most {_MOST_BITS} bits", param=name)
            return whole
    raise RequestError(f"{name} is {shown(value)}: it must be a whole number", param=name)


def checked_switch(value: object, name: str) -> bool:
    """True or False, and nothing that is only taken for one: `stream="no"` would be True."""
    if isinstance(value, bool):
        return value
    raise RequestError(f"{name} is {shown(value)}: it must be True or False", param=name)


def checked_overrides(overrides: object) -> None:
    """Values of metadata by their keys, or None; what the values may be is known where the file's are."""
    if overrides is None:
        return
    if not isinstance(overrides, Mapping):
        raise RequestError(f"overrides is {shown(overrides)}: it must be a mapping of keys to values")
    for key in overrides:
        if not isinstance(key, str):
            raise RequestError(f"overrides has the key {shown(key)}: keys of metadata are texts")


def checked_kv_type(name: object) -> TensorType:
    """The type of a KV cache's numbers by its name in any case; None is the default."""
    types = {each.name.lower(): each for each in KV_TYPES}
    if name is None:
        return KV_TYPES[0]
    if isinstance(name, str) and name.lower() in types:
        return types[name.lower()]
    *others, last = map(repr, types)
    raise RequestError(f"kv_type is {shown(name)}: it must be {', '.join(others)} or {last}")


def checked_speculation(name: object) -> str | None:
    """How guesses are made: "lookup", or None for not at all."""
    if name is None or (isinstance(name, str) and name in SPECULATIONS):
        return name
    raise RequestError(f"speculation is {shown(name)}: it must be {' or '.join(map(repr, SPECULATIONS))}, or None")


def checked_chat_template(chosen: object) -> None:
    """A name of a template that EMEL knows, or Jinja, or None for the file's own."""
    if chosen is None:
        return
    from emel.text.chat import is_jinja
    from emel.text.chat_templates import TEMPLATES

    if not isinstance(chosen, str) or not (is_jinja(chosen) or chosen in TEMPLATES):
        known = ", ".join(map(repr, TEMPLATES))
        raise RequestError(f"chat_template is {shown(chosen)}: it must be one of {known}, or Jinja")


def checked_ids(token_ids: object, n_vocab: int) -> list[int]:
    """Token ids of a vocabulary, as plain ints: from a list, a tuple, an array of NumPy."""
    if isinstance(token_ids, str | bytes) or not isinstance(token_ids, Iterable):
        raise RequestError(
            f"the token ids are {shown(token_ids)}: they must be a sequence of whole numbers",
            hint="model.tokenize(text) makes them" if isinstance(token_ids, str | bytes) else None,
        )
    ids = [checked_whole(each, f"token {index}") for index, each in enumerate(token_ids)]
    for each in (min(ids), max(ids)) if ids else ():
        if not 0 <= each < n_vocab:
            raise RequestError(f"token id {each} is outside the vocabulary: allowed are 0 to {n_vocab - 1}")
    return ids


def checked_prompt(token_ids: object, n_vocab: int, n_ctx: int) -> list[int]:
    """Token ids that are a prompt: at least one, and no more than the context holds."""
    ids = checked_ids(token_ids, n_vocab)
    if not ids:
        raise RequestError("the prompt has no tokens: give at least one character")
    if len(ids) > n_ctx:
        raise RequestError(
            f"the prompt has {len(ids)} tokens, the context holds {n_ctx}",
            hint="shorten it, or load with a larger context (n_ctx, -c)",
        )
    return ids


def checked_prompts(prompts: object) -> Iterable[Any]:
    """Several prompts, not one; each is checked when its turn comes."""
    if isinstance(prompts, str | bytes) or not isinstance(prompts, Iterable):
        raise RequestError(f"the prompts are {shown(prompts)}: they must be a list of texts, or another iterable")
    return prompts


def checked_conversations(conversations: object) -> Iterable[Any]:
    """Several conversations, not the messages of one; each is checked when its turn comes."""
    is_one = isinstance(conversations, list | tuple) and conversations and isinstance(conversations[0], Mapping)
    if is_one or isinstance(conversations, str | bytes | Mapping) or not isinstance(conversations, Iterable):
        raise RequestError(
            f"the conversations are {shown(conversations)}: they must be a list of lists of messages",
            hint='such as [[{"role": "user", "content": "Hello"}]]; model.chat takes one',
        )
    return conversations


def checked_messages(messages: object) -> Sequence[Mapping[str, Any]]:
    """Messages as a list; what is in them is for the template to judge."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise RequestError(
            f"the messages are {shown(messages)}: they must be a list of dicts with role and content",
            hint='such as [{"role": "user", "content": "Hello"}]',
        )
    return list(messages)


def checked_template_variables(given: object) -> dict[str, Any]:
    """Variables for a chat template by their names; none for None."""
    if given is None:
        return {}
    from emel.text.chat import RESERVED_VARIABLES

    name = "chat_template_kwargs"
    if not isinstance(given, Mapping) or not all(isinstance(each, str) for each in given):
        raise RequestError(
            f"{name} is {shown(given)}: it must be a mapping of names to values",
            hint='such as {"enable_thinking": False}',
        )
    if taken := sorted(each for each in given if each in RESERVED_VARIABLES or each.startswith("_")):
        raise RequestError(f"{name} cannot set {shown(taken[0])}: EMEL sets it, or it is an argument of its own")
    return dict(given)


def checked_request(
    given: Mapping[str, Any], tokenizer: Tokenizer | None = None
) -> tuple[SamplingParams, StopStrings, dict[str, Any]]:
    """Sampling parameters, stop strings and the other keywords of a request out of a call's."""
    keywords = {name: given[name] for name in _KEYWORDS if name in given}
    for name in ("cache_prompt", "digests", "speculate"):
        checked_switch(keywords.get(name, True), name)
    keywords["shown_controls"] = _checked_texts(keywords.get("shown_controls", ()), "shown_controls")
    priority = keywords["priority"] = checked_whole(keywords.get("priority", 0), "priority")
    if not -MAX_PRIORITY <= priority <= MAX_PRIORITY:
        allowed = f"allowed are whole numbers from {-MAX_PRIORITY} to {MAX_PRIORITY}"
        raise RequestError(f"priority is {priority}: {allowed}", param="priority")
    rest = {name: value for name, value in given.items() if name not in keywords and name != "stops"}
    params, stops = checked_sampling(rest, tokenizer)
    return params, StopStrings(stops + _checked_stops(given.get("stops"))), keywords


def checked_sampling(
    given: Mapping[str, Any], tokenizer: Tokenizer | None = None
) -> tuple[SamplingParams, tuple[str, ...]]:
    """Sampling parameters and stop strings out of a call's keywords; texts in them are tokens of the tokenizer."""
    unknown = sorted(given.keys() - SAMPLING_FIELDS - {"stop"})
    if unknown:
        from emel.engine.other_keywords import unknown_keyword

        raise unknown_keyword(unknown[0], KEYWORDS_OF_REQUESTS)
    values = {name: value for name, value in given.items() if name != "stop"}
    try:
        if tokenizer is not None and "logit_bias" in values:
            values["logit_bias"] = biases_by_id(values["logit_bias"], tokenizer)
        params = SamplingParams(**values)
        if tokenizer is not None:
            params = with_breakers(params, tokenizer)
    except SamplingError as error:
        raise RequestError(str(error), param=error.name) from error
    for name in _WHOLE_FIELDS:
        if given.get(name) is not None:
            checked_whole(given[name], name)
    return params, _checked_stops(given.get("stop"))


def _checked_texts(texts: object, name: str) -> tuple[str, ...]:
    if isinstance(texts, Iterable) and not isinstance(texts, str | bytes):
        found = tuple(texts)
        if all(isinstance(each, str) for each in found):
            return found
    raise RequestError(f"{name} is {shown(texts)}: it must be several texts")


def _checked_stops(stop: object) -> tuple[str, ...]:
    if stop is None:
        return ()
    stops = (stop,) if isinstance(stop, str) else tuple(stop) if isinstance(stop, Iterable) else (stop,)
    for each in stops:
        if not isinstance(each, str) or not each:
            allowed = "allowed are a text or several, each with at least one character"
            raise RequestError(f"stop is {shown(stop)}: {allowed}", param="stop")
    n_characters = sum(map(len, stops))
    if n_characters > MAX_STOP_CHARACTERS:
        raise RequestError(
            f"stop has {n_characters} characters in {len(stops)} strings: at most {MAX_STOP_CHARACTERS} are allowed",
            param="stop",
        )
    return stops
