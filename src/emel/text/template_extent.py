"""How large a value of a chat template is when it is printed, compared or serialised: as a tree.

A list that holds another one twice costs twice, though memory holds it once: forty such lists in each other are a
value of 2**40 elements. So they are counted as often as they would be visited, and counting stops at a limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from jinja2.utils import Namespace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_DEPTH = 200
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
CONTAINERS = (list, tuple, dict, set, frozenset, Namespace, *_VIEWS)
_ELEMENT_CHARACTERS = 4  # quotes, comma and space, or a colon
_OTHER_CHARACTERS = 32
_BITS_PER_DIGIT = 3


class Extent(NamedTuple):
    """Of a value as a tree: its elements in all, about the length of its text, and how deep it is nested."""

    n_elements: int
    n_characters: int
    depth: int


def extent(values: Iterable[object], limit: int) -> Extent:
    """The extent of values together; the counting stops soon after elements, characters or depth pass their limits."""
    n_elements = n_characters = depth = 0
    open_ones: list[Iterator[object]] = [iter(values)]
    while open_ones:
        depth = max(depth, len(open_ones) - 1)
        for each in open_ones[-1]:
            n_elements += 1
            if isinstance(each, CONTAINERS):
                n_characters += _ELEMENT_CHARACTERS
                open_ones.append(_parts(each))
                break
            n_characters += printed_length(each) + (_ELEMENT_CHARACTERS if len(open_ones) > 1 else 0)
            if n_elements > limit or n_characters > limit:
                return Extent(n_elements, n_characters, depth)
        else:
            open_ones.pop()
        if n_elements > limit or n_characters > limit or depth > MAX_DEPTH:
            break
    return Extent(n_elements, n_characters, depth)


def printed_length(value: object) -> int:
    """About the length of str(value), of what is no container."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, int):
        return 5 + value.bit_length() // _BITS_PER_DIGIT
    return _OTHER_CHARACTERS


def _parts(container: object) -> Iterator[object]:
    if isinstance(container, Namespace):
        container = object.__getattribute__(container, "_Namespace__attrs")
    if isinstance(container, dict):
        return (part for item in container.items() for part in item)
    return iter(container)  # type: ignore[call-overload, no-any-return]
