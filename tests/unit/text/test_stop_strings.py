"""Invariant: what the automaton finds is what looking for each string finds, and it holds back no more than it must."""

from __future__ import annotations

import time
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emel.text.stop_strings import StopStrings

STOPS = st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=6)


@given(stops=STOPS, text=st.text("abc", max_size=30))
def test_first_string_that_completes_is_found(stops: list[str], text: str) -> None:
    node, n_read, found = StopStrings(stops).find(text, 0)
    ends = [n for n in range(len(text) + 1) if any(text[:n].endswith(stop) for stop in stops)]
    assert n_read == min(ends, default=len(text))
    completed = [stop for stop in stops if ends and text[:n_read].endswith(stop)]
    assert found == max(completed, key=len, default=None)
    assert node >= 0


@given(stops=STOPS, text=st.text("abc", max_size=30))
def test_what_may_become_a_string_is_held(stops: list[str], text: str) -> None:
    automaton = StopStrings(stops)
    node, _, found = automaton.find(text, 0)
    if found is None:
        begun = (n for n in range(len(text) + 1) if any(stop.startswith(text[len(text) - n :]) for stop in stops))
        assert automaton.n_held(node) == max(begun)


@given(stops=STOPS, pieces=st.lists(st.text("abc", max_size=4), max_size=8))
def test_pieces_find_what_the_whole_text_finds(stops: list[str], pieces: list[str]) -> None:
    automaton = StopStrings(stops)
    node, n_before, found = 0, 0, None
    for piece in pieces:
        node, n_read, found = automaton.find(piece, node)
        n_before += n_read
        if found is not None:
            break
    assert (node, n_before, found) == automaton.find("".join(pieces), 0)


def test_without_strings_everything_is_read() -> None:
    automaton = StopStrings()
    assert automaton.find("abc", 0) == (0, 3, None)
    assert automaton.n_held(0) == 0


def test_ten_thousand_strings_cost_a_token_what_one_costs() -> None:
    """CPU time of the fastest of many calls: 10,000 strings, looked for one by one, took 30 ms a token."""
    random = Random(3)
    stops = ["".join(random.choices("abcdefgh", k=random.randint(5, 15))) for _ in range(10_000)]
    few, many = StopStrings(stops[:1]), StopStrings(stops)

    def seconds(automaton: StopStrings) -> float:
        begin = time.process_time()
        for _ in range(100):
            automaton.find("hgfe xyz", 0)
        return (time.process_time() - begin) / 100

    assert min(seconds(many) for _ in range(20)) < 10 * min(seconds(few) for _ in range(20)) < 1e-3


@pytest.mark.parametrize("stops", [[""], "stop", ["a", ""], [b"a"], [None]])
def test_strings_that_are_no_texts_are_refused(stops: list[str]) -> None:
    with pytest.raises(ValueError, match="stop strings must be a list of texts with at least one character each"):
        StopStrings(stops)
