"""An answer on its way to stdout, piece by piece, and the line of figures that closes it."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from emel.cli.terminal import say_note, write_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emel import Chunk, Completion


def write_answer(chunks: Iterator[Chunk]) -> Completion | None:
    """Writes every piece as it comes, and a line break at the end unless the text has one.

    When the answer is stopped, by Ctrl-C or by a reader that went away, the iterator is closed, which cancels the
    request.
    """
    completion, text = None, ""
    with contextlib.ExitStack() as stack:
        if close := getattr(chunks, "close", None):
            stack.callback(close)
        try:
            for chunk in chunks:
                completion = chunk.completion
                if chunk.text:
                    text = chunk.text
                    write_out(text)
        except KeyboardInterrupt:
            if sys.stdout.isatty():
                write_out("\n")
            raise
    if not text.endswith("\n"):
        write_out("\n")
    return completion


def say_figures(completion: Completion) -> None:
    """Tokens, speeds and time to the first token, in one line on stderr."""
    timings = completion.timings
    parts = [
        _at(timings.n_prompt_tokens, "prompt token", timings.prefill_tokens_per_second),
        _at(timings.n_tokens, "token", timings.decode_tokens_per_second),
    ]
    if timings.n_tokens:
        parts.append(f"first token after {timings.time_to_first_token:.3f} s")
    if completion.finish_reason == "length":
        parts.append("cut at the limit (-n, -c)")
    say_note(f"[{', '.join(parts)}]")


def _at(number: int, noun: str, speed: float) -> str:
    """A count and its speed, which one token alone does not have."""
    return f"{number} {noun}{'' if number == 1 else 's'}" + (f" at {speed:.1f} tokens/s" if speed else "")
