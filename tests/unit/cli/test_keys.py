"""A server that was given keys has some: nothing that holds none opens it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emel.cli.keys import given_keys
from emel.cli.terminal import UsageError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EMEL_API_KEY", raising=False)


def test_keys_of_the_flag_come_before_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert given_keys(None, None) == ()
    monkeypatch.setenv("EMEL_API_KEY", "c")
    assert given_keys(None, None) == ("c",)
    assert given_keys("a, b,", None) == ("a", "b")


@pytest.mark.parametrize("text", ["", " ", ",", " , "])
def test_what_has_no_key_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"^--api-key was given, but there is no key in it$"):
        given_keys(text, None)
    monkeypatch.setenv("EMEL_API_KEY", text)
    with pytest.raises(UsageError, match=r"^EMEL_API_KEY is set, but there is no key in it$"):
        given_keys(None, None)


def test_a_comment_begins_where_a_word_does(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"\xef\xbb\xbf# of all\r\none\r\n  two  # bob\n\nthr#ee\t#\n#four\n")
    assert given_keys("zero", str(path)) == ("zero", "one", "two", "thr#ee")


def test_a_key_with_white_space_is_refused_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("one\n# two\nsecret key # three\n")
    with pytest.raises(UsageError, match="line 3: a key has no white space") as refusal:
        given_keys(None, str(path))
    assert "secret" not in str(refusal.value)
    with pytest.raises(UsageError, match=r"^--api-key was given, but a key has no white space"):
        given_keys("a,b c", None)


def test_a_file_that_cannot_be_read_is_told_with_its_flag(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    for content, reason in (
        (None, "no such file"),
        (b"# none\n", "there is no key in it"),
        (b"\xff", "is not valid UTF-8"),
    ):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(UsageError, match=f"^--api-key-file {path}.*{reason}"):
            given_keys(None, str(path))
