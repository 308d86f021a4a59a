"""What one rendering of a chat template may cost, counted and not timed: the same template always ends the same way.

Steps: loop rounds, operators, outputs; calls and filters take eight; one more per 256 characters or 4 elements handled.
Characters: what is written in all, and the length of any one value made on the way. Both grow with the input, so that
long conversations are not mistaken for attacks. Values that outgrow the input make every further step dearer, because
slices and comparisons of them cannot be counted one by one.
Nested values are sized by template_extent.py, as often as they would be printed or compared: sharing saves nothing.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import Any

from emel.text.template_extent import CONTAINERS, MAX_DEPTH, Extent, extent, printed_length

BASE_STEPS = 200_000
STEPS_PER_VALUE = 2_000  # for each string of the input: templates loop over messages inside loops over messages
BASE_CHARACTERS = 1_000_000
CHARACTERS_PER_INPUT = 8  # templates may repeat the tools or a message a few times
_STEPS_PER_CALL = 8
_CHARACTERS_PER_STEP = 256
_ELEMENTS_PER_STEP = 4
_WEIGHT_CHUNK = 2_048
_MAX_INTEGER_BITS = 4_096
SHALLOW_CALL = "(macro)"  # the name check_method gets for calls that only hand values on
_MAKES = "the chat template makes a value of"

# A width or precision of five digits or more, or one taken from the arguments.
_WIDE_PERCENT = re.compile(r"%[^a-zA-Z%]*(?:\d{5}|\*)")
_WIDE_BRACE = re.compile(r"\{[^{}]*(?:\d{5}|\{)")
_WIDE_METHODS = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs", "indent", "truncate"})


# Filters and methods that look no deeper than at the elements of what they get, or hand it on (list.count compares).
# fmt: off
_SHALLOW = frozenset({
    "d", "default", "first", "items", "keys", "last", "length", "list", "map", "reject", "rejectattr",
    "reverse", "select", "selectattr", "values", SHALLOW_CALL,
})
# fmt: on


class BudgetError(Exception):
    """The template did more than its budget allows."""


class Budget:
    """The remaining allowance of one rendering. Its parts are private: templates cannot reach them."""

    __slots__ = ("_characters", "_input", "_longest", "_steps", "_weight")

    def __init__(self, n_characters: int, n_values: int) -> None:
        self._input = n_characters
        self._longest = self._characters = BASE_CHARACTERS + CHARACTERS_PER_INPUT * n_characters
        self._steps = BASE_STEPS + STEPS_PER_VALUE * n_values
        self._weight = 1

    def charge(self, n: int = 1) -> None:
        """Takes n steps."""
        self._steps -= n * self._weight
        if self._steps < 0:
            raise BudgetError("the chat template takes too many steps: it loops without end, or nearly so")

    def charge_for(self, *values: object) -> None:
        """Takes the steps of handling these values once."""
        self.charge(1 + sum(map(_steps_for, values)))

    def check_length(self, n: int) -> None:
        """Refuses a value of n characters or elements before it is made."""
        if n > self._longest:
            raise BudgetError(f"{_MAKES} {n} characters; at most {self._longest} are allowed")
        self._weight = max(self._weight, 1 + (n - self._input) // _WEIGHT_CHUNK)

    def measure(self, *values: object) -> Extent:
        """The extent of values that are gone through to their depths, whose steps it takes; refuses too large ones."""
        if not any(isinstance(each, CONTAINERS) for each in values):
            return Extent(0, sum(map(printed_length, values)), 0)
        found = extent(values, self._longest)
        if found.depth > MAX_DEPTH:
            raise BudgetError(f"the chat template nests values more than {MAX_DEPTH} deep")
        self.charge(found.n_elements // _ELEMENTS_PER_STEP + found.n_characters // _CHARACTERS_PER_STEP)
        self.check_length(found.n_elements)
        if found.n_characters > self._longest:
            raise BudgetError(f"{_MAKES} more than {self._longest} characters, which is all that is allowed")
        return found

    def emit(self, n: int) -> None:
        """Takes n characters of output, whether they are written to the prompt or into a variable."""
        self.charge()
        self._characters -= n
        if self._characters < 0:
            raise BudgetError(f"the chat template writes more than {self._longest} characters")


_CURRENT: ContextVar[Budget | None] = ContextVar("emel_template_budget", default=None)


def current() -> Budget:
    """The budget of the rendering this thread is in; a fresh small one outside (while compiling)."""
    budget = _CURRENT.get()
    return budget if budget is not None else Budget(0, 0)


class spending:  # noqa: N801 - reads as the statement it is used as: `with spending(budget):`
    """Makes a budget current."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    def __enter__(self) -> None:
        self._token = _CURRENT.set(self._budget)

    def __exit__(self, *_: object) -> None:
        _CURRENT.reset(self._token)


def size_of(value: object) -> int:
    """Characters of a string, elements of a container, 0 for the rest."""
    return len(value) if isinstance(value, str | list | tuple | dict) else 0


def check_binary(budget: Budget, operator: str, left: Any, right: Any) -> None:
    """Refuses an operation whose result would be too large, before it is done."""
    budget.charge_for(left, right)
    if operator == "*":
        if isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() + right.bit_length())
        else:
            budget.check_length(_repeated(left, right))
    elif operator == "**":
        if isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() * abs(right))
    elif operator == "%" and isinstance(left, str):
        if _WIDE_PERCENT.search(left):
            raise BudgetError("the chat template formats with too large a width")
        n_uses = max(left.count("%("), 1)  # a mapping's value may be named many times
        budget.check_length(len(left) + budget.measure(right).n_characters * n_uses)
    elif operator == "+":
        budget.check_length(size_of(left) + size_of(right))


def check_method(budget: Budget, subject: object, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """The same for a method of a string, or a filter of the same name; subject is what it works on."""
    values = (*args, *kwargs.values())
    budget.charge(_STEPS_PER_CALL)
    budget.charge_for(subject, *values)
    if name not in _SHALLOW:
        budget.measure(subject, *values)
    if name in _WIDE_METHODS:
        widths = [each for each in values if isinstance(each, int)]
        lines = subject.count("\n") + 1 if isinstance(subject, str) else 1
        tabs = subject.count("\t") if isinstance(subject, str) and name == "expandtabs" else 1
        fill = max(max(widths, default=8), max(map(size_of, values), default=0))
        budget.check_length(size_of(subject) + fill * max(lines, tabs))
    elif name == "replace" and isinstance(subject, str) and len(args) >= 2:
        old, new = str(args[0]), str(args[1])
        budget.check_length(len(subject) + subject.count(old) * len(new))
    elif name == "format" and isinstance(subject, str):
        if _WIDE_BRACE.search(subject):
            raise BudgetError("the chat template formats with too large a width")
        budget.check_length(len(subject) + subject.count("{") * budget.measure(*values).n_characters)
    for each in values:
        if isinstance(each, int):
            budget.check_length(abs(each))


def check_join(budget: Budget, pieces: object, separator: object) -> None:
    """The same for joining pieces, whichever way it is written."""
    budget.charge_for(pieces, separator)
    total = budget.measure(pieces).n_characters
    budget.check_length(total + size_of(pieces) * budget.measure(separator).n_characters)


def _steps_for(value: object) -> int:
    return size_of(value) // (_CHARACTERS_PER_STEP if isinstance(value, str) else _ELEMENTS_PER_STEP)


def _repeated(left: object, right: object) -> int:
    count = right if isinstance(right, int) else left
    return max(size_of(left), size_of(right)) * max(count, 0) if isinstance(count, int) else 0


def _check_bits(n_bits: int) -> None:
    if n_bits > _MAX_INTEGER_BITS:
        raise BudgetError(f"the chat template makes a number of {n_bits} bits; at most {_MAX_INTEGER_BITS} are allowed")
