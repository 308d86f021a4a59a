"""What `emel perplexity` and `emel accuracy` have in common: a model, a text, and how it is cut."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from emel.cli.arguments import add_model, add_session, chosen_model, whole_number
from emel.cli.terminal import UsageError

if TYPE_CHECKING:
    import argparse

    from emel import Model


def add_scored_text(parser: argparse.ArgumentParser) -> None:
    """MODEL and FILE, `--chunks`, and the options of model and session."""
    parser.add_argument("words", nargs="*", metavar="[MODEL] [FILE]", help="the model, and a text (- for stdin)")
    parser.add_argument("-f", "--file", metavar="FILE", help="the text is in this file")
    parser.add_argument("--chunks", type=whole_number(1), metavar="N", help="compute the first N chunks alone")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("-q", "--quiet", action="store_true", help="nothing on stderr but errors")
    add_model(parser)
    add_session(parser)


def split_model_and_file(arguments: argparse.Namespace) -> tuple[str | None, str]:
    """The model (None: the default one) and the file; UsageError for a word too many, or no file."""
    model, file, words = chosen_model(arguments), arguments.file, list(arguments.words)
    if words and file is None:
        file = words.pop()
        if not words and model is None and _is_model_alone(file):
            raise UsageError(f"no text: {file!r} is a model; give a file behind it, or - for standard input")
    if words and model is None:
        model = words.pop(0)
    if words:
        raise UsageError(f"unexpected argument {words[-1]!r}: one model and one file are allowed")
    if file is None:
        raise UsageError("no text: give a file, or - for standard input")
    return model, file


def _is_model_alone(word: str) -> bool:
    from emel.engine.models import is_model_reference

    return is_model_reference(word) and (word.endswith(".gguf") or not os.path.lexists(word))


def open_scored(model: str | None, arguments: argparse.Namespace) -> Model:
    """Loads the model for chunks of `-c` tokens, 512 by default, and no requests besides."""
    from emel.accuracy.chunks import DEFAULT_CONTEXT
    from emel.cli.models import open_model

    if arguments.ctx_size is None:
        arguments.ctx_size = DEFAULT_CONTEXT
    return open_model(model, arguments, n_lanes=1, prefix_bytes=0, speculation=None)
