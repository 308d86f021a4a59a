"""What values a sampling parameter takes, and the one error for those it does not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sized
from typing import Any, NamedTuple, Protocol

from emel.text.errors import shown

MOST_TOKENS = 1 << 16
"""In a list of tokens or biases: each takes some microseconds to check."""
_LONGEST_STEPS = 256  # characters, or names: no step is named twice


class SamplingError(ValueError):
    """A sampling parameter out of its range; `name` is the field."""

    def __init__(self, name: str, seen: object, allowed: str) -> None:
        super().__init__(f"{name} is {shown(seen, 120)}: allowed are {allowed}")
        self.name = name


class Kind(Protocol):
    """Checks one field."""

    @property
    def allowed(self) -> str:
        """The values it takes, in words."""

    def check(self, name: str, value: Any) -> Any:
        """The value as it is kept; SamplingError when it is not allowed."""


class Number(NamedTuple):
    """Numbers of a range."""

    kind: type[int] | type[float]
    low: float
    high: float
    meaning: str
    may_be_none: bool = False

    @property
    def allowed(self) -> str:
        """The values it takes, in words."""
        noun = "whole numbers" if self.kind is int else "numbers"
        bounds = f"{noun} from {self.low} to {self.high}" if self.high < math.inf else f"{noun} from {self.low} up"
        return f"{bounds} ({self.meaning})" if self.meaning else bounds

    def check(self, name: str, value: Any) -> float | int | None:
        """The value as a plain int or float; SamplingError when it is out of range."""
        if value is None and self.may_be_none:
            return None
        number = as_number(self.kind, value)
        # A comparison with NaN is false: it is refused here.
        if number is None or not self.low <= number <= self.high:
            raise SamplingError(name, value, self.allowed)
        return number


class Switch(NamedTuple):
    """True or False."""

    allowed: str = "True and False"

    def check(self, name: str, value: Any) -> bool:
        """The value; SamplingError for anything but a bool."""
        if not isinstance(value, bool):
            raise SamplingError(name, value, self.allowed)
        return value


class Steps(NamedTuple):
    """Names of steps in their order, each at most once."""

    names: Mapping[str, str]  # of a step -> its letter
    aliases: Mapping[str, str]

    @property
    def allowed(self) -> str:
        """The values it takes, in words."""
        return (
            f"a list of {', '.join(self.names)}, each at most once, "
            f"or their letters as one text (of {''.join(self.names.values())})"
        )

    def check(self, name: str, value: Any) -> tuple[str, ...]:
        """The names; SamplingError for an unknown or repeated one."""
        if isinstance(value, str | list | tuple) and len(value) > _LONGEST_STEPS:
            raise SamplingError(name, value, self.allowed)
        by_letter = {letter: step for step, letter in self.names.items()}
        if isinstance(value, str):
            parts = [part.strip() for part in value.split(";")]
            is_letters = len(parts) == 1 and self._name(parts[0]) is None
            found = [by_letter.get(letter) for letter in value] if is_letters else [self._name(part) for part in parts]
        elif isinstance(value, Iterable) and not isinstance(value, bytes | Mapping):
            found = [self._name(each) for each in value]
        else:
            found = [None]
        steps = tuple(each for each in found if each is not None)
        if len(steps) < len(found) or len(set(steps)) < len(steps):
            raise SamplingError(name, value, self.allowed)
        return steps

    def _name(self, text: object) -> str | None:
        if not isinstance(text, str):
            return None
        plain = text.replace("-", "_")
        return plain if plain in self.names else self.aliases.get(plain)


class Texts(NamedTuple):
    """Several texts, none of them empty; few and short, as each is looked for in every token of the vocabulary."""

    n_most: int
    most_characters: int

    @property
    def allowed(self) -> str:
        """The values it takes, in words."""
        return f"a list of at most {self.n_most} texts, each of 1 to {self.most_characters} characters"

    def check(self, name: str, value: Any) -> tuple[str, ...]:
        """The texts as a tuple; one text alone is a list of one."""
        texts = (value,) if isinstance(value, str) else value
        if not isinstance(texts, Iterable) or isinstance(texts, bytes | Mapping):
            raise SamplingError(name, value, self.allowed)
        texts = tuple(texts)
        if len(texts) > self.n_most or not all(
            isinstance(each, str) and 0 < len(each) <= self.most_characters for each in texts
        ):
            raise SamplingError(name, value, self.allowed)
        return texts


class Tokens(NamedTuple):
    """Token ids."""

    allowed: str = "a list of token ids, whole numbers from 0 to 2147483647"

    def check(self, name: str, value: Any) -> tuple[int, ...]:
        """The ids as a tuple; one id alone is a list of one."""
        ids = (value,) if as_token(value) is not None else value
        if not isinstance(ids, Iterable) or isinstance(ids, str | bytes | Mapping):
            raise SamplingError(name, value, self.allowed)
        check_length(name, ids)
        found = [as_token(each) for each in ids]
        tokens = tuple(each for each in found if each is not None)
        if len(tokens) < len(found):
            raise SamplingError(name, value, self.allowed)
        return tokens


class Sequences(NamedTuple):
    """Several sequences of token ids."""

    allowed: str = "a list of lists of token ids"

    def check(self, name: str, value: Any) -> tuple[tuple[int, ...], ...]:
        """The sequences as tuples."""
        if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
            raise SamplingError(name, value, self.allowed)
        return tuple(Tokens(self.allowed).check(name, each) for each in value)


class Biases(NamedTuple):
    """A bias for each of some token ids; False for never."""

    largest: float

    @property
    def allowed(self) -> str:
        """The values it takes, in words."""
        return (
            "token ids with a bias each (an object, a dict), or a list of [token id, bias]; "
            f"a bias is a number from {-self.largest} to {self.largest}, or false for never"
        )

    def check(self, name: str, value: Any) -> tuple[tuple[int, float], ...]:
        """(token, bias) by ascending token, those of one token added up; -inf for never."""
        pairs = value.items() if isinstance(value, Mapping) else value
        if not isinstance(pairs, Iterable) or isinstance(pairs, str | bytes):
            raise SamplingError(name, value, self.allowed)
        check_length(name, value)
        biases: dict[int, float] = {}
        for pair in pairs:
            token, bias = self._checked(name, pair)
            biases[token] = biases.get(token, 0.0) + bias
        return tuple(sorted(biases.items()))

    def _checked(self, name: str, pair: Any) -> tuple[int, float]:
        try:
            token, bias = pair
        except (TypeError, ValueError):
            raise SamplingError(name, pair, self.allowed) from None
        number = -math.inf if bias is False else as_number(float, bias)
        token_id = as_token(token)
        if token_id is None or number is None or not (number == -math.inf or abs(number) <= self.largest):
            raise SamplingError(name, pair, self.allowed)
        return token_id, number


def check_length(name: str, values: Iterable[Any]) -> None:
    """SamplingError for more tokens than are checked in a moment."""
    if isinstance(values, Sized) and len(values) > MOST_TOKENS:
        raise SamplingError(name, values, f"at most {MOST_TOKENS} tokens: these are {len(values)}")


def as_token(value: Any) -> int | None:
    """A token id as a plain int; None for what is none."""
    number = as_number(int, value)
    return int(number) if number is not None and 0 <= number < 2**31 else None


def as_number(kind: type[int] | type[float], value: Any) -> float | int | None:
    """Numbers of any library as plain ones; None for what is no number, and for fractions where none are allowed."""
    if isinstance(value, bool | str | bytes):
        return None
    try:
        number = float(value)
        if kind is float:
            return number
        return int(value) if math.isfinite(number) and int(value) == value else None
    except (TypeError, ValueError, OverflowError):
        return None
