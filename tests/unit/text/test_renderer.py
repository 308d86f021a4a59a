from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emel.text.renderer import Renderer
from emel.text.stop_strings import StopStrings

STOPS = st.lists(st.text("abc", min_size=1, max_size=4), max_size=4)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(ends)]


def stream(pieces: list[bytes], stops: list[str]) -> tuple[str, str | None]:
    renderer = Renderer(StopStrings(stops))
    text = "".join(map(renderer.feed, pieces)) + renderer.flush()
    return text, renderer.stop


@given(data=st.one_of(st.binary(), st.text().map(str.encode)), places=st.lists(st.integers(0, 999)), stops=STOPS)
def test_renderer_streams_what_it_renders_at_once(data: bytes, places: list[int], stops: list[str]) -> None:
    assert stream(cut(data, places), stops) == stream([data], stops)


@given(text=st.text("abc", max_size=40), places=st.lists(st.integers(0, 999)), stops=STOPS)
def test_renderer_ends_before_the_stop_that_completes_first(text: str, places: list[int], stops: list[str]) -> None:
    ends = [n for n in range(len(text) + 1) if any(text[:n].endswith(stop) for stop in stops)]
    seen = text[: min(ends)] if ends else text
    expected = min((seen.removesuffix(stop) for stop in stops if ends and seen.endswith(stop)), key=len, default=text)
    assert stream(cut(text.encode(), places), stops)[0] == expected


@given(text=st.text())
def test_renderer_never_replaces_valid_text(text: str) -> None:
    assert stream([bytes([each]) for each in text.encode()], []) == (text, None)


@given(data=st.binary())
def test_renderer_without_stops_is_a_replacing_decoder(data: bytes) -> None:
    assert stream([bytes([each]) for each in data], [])[0] == data.decode("utf-8", "replace")


def test_renderer_holds_a_character_back_until_it_is_whole() -> None:
    renderer = Renderer(StopStrings())
    first, second = "한".encode()[:2], "한".encode()[2:]
    assert [renderer.feed(b"a" + first), renderer.feed(b""), renderer.feed(second + b"b")] == ["a", "", "한b"]
    assert renderer.flush() == ""


def test_renderer_replaces_an_unfinished_character_only_at_the_end() -> None:
    renderer = Renderer(StopStrings())
    assert renderer.feed("😀".encode()[:3]) == ""
    assert renderer.flush() == "\ufffd"


@pytest.mark.parametrize("data", [b"\x80", b"\xff", b"\xc0"])
def test_renderer_replaces_bytes_nothing_can_complete_at_once(data: bytes) -> None:
    assert Renderer(StopStrings()).feed(data + b"a") == "\ufffda"


def test_renderer_stops_across_tokens() -> None:
    renderer = Renderer(StopStrings(["O P Q"]))
    assert [renderer.feed(each) for each in (b"N", b" O", b" P", b" Q", b" R")] == ["N", " ", "", "", ""]
    assert renderer.stop == "O P Q"
    assert renderer.flush() == ""


def test_renderer_emits_a_refuted_beginning_once() -> None:
    renderer = Renderer(StopStrings(["<stop>"]))
    assert [renderer.feed(each) for each in (b"a<st", b"o", b"!", b"<")] == ["a", "", "<sto!", ""]
    assert renderer.flush() == "<"
    assert renderer.flush() == ""
    assert renderer.stop is None


def test_renderer_leaks_nothing_of_a_stop() -> None:
    assert stream([b"ABC", b"DE", b"FGH", b"IJ", b"K"], ["DEFGHIJ"]) == ("ABC", "DEFGHIJ")


def test_renderer_finds_a_stop_that_starts_inside_a_refuted_one() -> None:
    assert stream([b"a", b"a", b"b"], ["ab"]) == ("a", "ab")
    assert stream([b"aba", b"bc"], ["abc", "abab!"]) == ("ab", "abc")


def test_renderer_finds_stops_that_are_not_ascii() -> None:
    data = "x終y".encode()
    assert stream([data[:2], data[2:3], data[3:]], ["終"]) == ("x", "終")
