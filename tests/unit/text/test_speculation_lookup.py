"""Invariant: the index finds what a search through all tokens finds, however the tokens came to it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from emel.text.speculation_lookup import MAX_MATCH, MAX_WALK, MIN_MATCH, Lookup, continued


def searched(ids: list[int]) -> tuple[int, int]:
    """As Lookup.find, by looking everywhere."""
    best = (-1, 0)
    ends = [end for end in range(len(ids) - 2, 0, -1) if ids[end - 1 : end + 1] == ids[-2:]]
    for end in ends[:MAX_WALK]:
        n = MIN_MATCH
        while n < MAX_MATCH and end - n >= 0 and ids[end - n] == ids[len(ids) - 1 - n]:
            n += 1
        if n > best[1]:
            best = end + 1, n
    return best


@settings(max_examples=200, deadline=None)
@given(ids=st.lists(st.integers(0, 3), max_size=120), cuts=st.lists(st.integers(0, 120), max_size=5))
def test_lookup_finds_the_longest_match_and_the_latest_of_equals(ids: list[int], cuts: list[int]) -> None:
    lookup = Lookup()
    for cut in sorted(cuts):
        lookup.extend(ids[:cut])
    lookup.extend(ids)
    assert lookup.find(ids) == searched(ids)


def test_lookup_finds_nothing_in_what_never_repeats() -> None:
    lookup = Lookup()
    assert lookup.find([]) == (-1, 0)
    for n in range(1, 40):
        lookup.extend(list(range(n)))
        assert lookup.find(list(range(n))) == (-1, 0)


def test_lookup_tells_apart_the_largest_ids() -> None:
    ids = [2**31 - 1, 0, 5, 2**31 - 1, 1, 6, 2**31 - 1, 0]
    lookup = Lookup()
    lookup.extend(ids)
    assert lookup.find(ids) == (2, 2)


def test_continued_repeats_what_lies_before_the_end() -> None:
    assert continued([1, 2, 3, 4], 1, 2) == [2, 3]
    assert continued([1, 2, 3, 4], 2, 7) == [3, 4, 3, 4, 3, 4, 3]
    assert continued([9, 9], 1, 3) == [9, 9, 9]
    assert continued([1, 2], 1, 0) == []
