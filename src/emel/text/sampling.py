"""Sampling parameters: the one table of defaults (llama.cpp's, which people know) and allowed ranges."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple

_MAX_SEED = 2**64 - 1
# Below it 1/temperature times a difference of logits means nothing any more, and float32 may read 0.
_SMALLEST_TEMPERATURE = 1e-6


class SamplingError(ValueError):
    """A sampling parameter out of its range; `name` is the field."""

    def __init__(self, name: str, seen: object, allowed: str) -> None:
        super().__init__(f"{name} is {seen!r}: allowed are {allowed}")
        self.name = name


class _Range(NamedTuple):
    kind: type[int] | type[float]
    low: float
    high: float
    meaning: str
    may_be_none: bool = False

    @property
    def allowed(self) -> str:
        noun = "whole numbers" if self.kind is int else "numbers"
        bounds = f"{noun} from {self.low} to {self.high}" if self.high < math.inf else f"{noun} from {self.low} up"
        return f"{bounds} ({self.meaning})"

    def check(self, name: str, value: Any) -> float | int | None:
        """The value as a plain int or float; SamplingError when it is out of range."""
        if value is None and self.may_be_none:
            return None
        number = _as_number(self.kind, value)
        # A comparison with NaN is false: it is refused here.
        if number is None or not self.low <= number <= self.high:
            raise SamplingError(name, value, self.allowed)
        return number


def _ranged(default: Any, range_: _Range) -> Any:
    return field(default=default, metadata={"range": range_})


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token is chosen, and how many. Checked when made: SamplingError names field, value and range."""

    temperature: float = _ranged(0.8, _Range(float, 0.0, 100.0, "0 is greedy"))
    top_k: int = _ranged(40, _Range(int, 0, 2**31 - 1, "0 is off"))
    top_p: float = _ranged(0.95, _Range(float, 0.0, 1.0, "1 is off"))
    min_p: float = _ranged(0.05, _Range(float, 0.0, 1.0, "0 is off"))
    seed: int | None = _ranged(None, _Range(int, 0, _MAX_SEED, "None is random", may_be_none=True))
    max_tokens: int | None = _ranged(None, _Range(int, 0, math.inf, "None is until the end", may_be_none=True))

    def __post_init__(self) -> None:
        for each in fields(self):
            checked = each.metadata["range"].check(each.name, getattr(self, each.name))
            object.__setattr__(self, each.name, checked)

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is always taken: also at temperatures too small to tell from 0."""
        return self.temperature < _SMALLEST_TEMPERATURE

    def with_seed(self, seed: int) -> SamplingParams:
        """The same with a seed, if it has none yet: what is echoed is what was used."""
        return self if self.seed is not None else replace(self, seed=seed)

    def effective(self) -> dict[str, float | int | None]:
        """All values by name, for echoing."""
        return asdict(self)


def _as_number(kind: type[int] | type[float], value: Any) -> float | int | None:
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
