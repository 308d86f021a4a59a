"""The three standard streams: data on stdout, everything a person reads besides on stderr, and neither surprises us."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TextIO


class UsageError(Exception):
    """The command line contradicts itself or lacks something; the text names the flag. Ends with exit code 2."""


def prepare_streams() -> None:
    """Makes the standard streams safe to use, whatever the caller closed and whatever bytes pass through.

    A closed descriptor 0, 1 or 2 would be reused for the next file opened, and text meant for a person would end up in
    it; so each is opened on the null device.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free descriptor: this one
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - lives as long as the process
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    _be_lenient(sys.stdout)
    _be_lenient(sys.stderr)


def _be_lenient(stream: TextIO) -> None:
    if isinstance(stream, io.TextIOWrapper):
        # File names that are not UTF-8 leave as the bytes they came in as; other encodings get escapes, never a crash.
        is_data = stream is sys.stdout and stream.encoding.lower().replace("-", "") == "utf8"
        stream.reconfigure(errors="surrogateescape" if is_data else "backslashreplace")


def write_out(text: str) -> None:
    """Writes data to stdout at once: a reader sees every piece as it is made."""
    sys.stdout.write(text)
    sys.stdout.flush()


def say(text: str) -> None:
    """A line for the person, on stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def say_note(text: str) -> None:
    """A line of lesser weight, on stderr: dimmed where there is colour."""
    say(f"\x1b[2m{text}\x1b[0m" if has_colour(sys.stderr) else text)


def say_error(message: str, hint: str | None = None) -> None:
    """`emel: error: ...` in one line, and a hint in another when there is one."""
    label = "\x1b[1;31merror\x1b[0m" if has_colour(sys.stderr) else "error"
    say(f"emel: {label}: {_one_line(message)}")
    if hint:
        say(f"hint: {_one_line(hint)}")


def has_colour(stream: TextIO) -> bool:
    """Whether escape sequences may be written: a capable terminal, and NO_COLOR (no-color.org) not set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def abandon_stdout() -> None:
    """After a broken pipe: sends what is still buffered nowhere, so that the end of the process is quiet."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def _one_line(text: str) -> str:
    """The text in one line, what cannot be printed escaped: names out of files must not control the terminal."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in " ".join(text.split()))
