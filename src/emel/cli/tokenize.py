"""`emel tokenize`: text to token ids, with the vocabulary of a model file."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from emel.cli.arguments import add_model
from emel.cli.files import read_file
from emel.cli.models import locate
from emel.cli.terminal import UsageError, write_out

if TYPE_CHECKING:
    import argparse

    from emel.text.tokenizer import Tokenizer


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.usage = "emel tokenize [options] [MODEL] [TEXT]"
    parser.epilog = "The text is taken byte for byte; without TEXT it is standard input, its last line break included."
    parser.add_argument("words", nargs="*", metavar="[MODEL] [TEXT]", help="whose vocabulary, and what to tokenize")
    parser.add_argument("-p", "--prompt", metavar="TEXT", help="the text")
    parser.add_argument("-f", "--file", metavar="FILE", help="the text is in this file")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--ids", action="store_true", help="the ids alone, in one line")
    shape.add_argument("--json", action="store_true", help="a JSON list of ids and pieces")
    parser.add_argument("--no-special", action="store_true", help="without the tokens the model adds at the ends")
    parser.add_argument("--parse-special", action="store_true", help="read <|names|> of control tokens as those tokens")
    add_model(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints one token per line, or all ids, or JSON."""
    from emel.cli.prompt import split_words

    model, word = split_words(arguments)
    text = _read_bytes(word, arguments)
    from emel.gguf import open_gguf
    from emel.text.tokenizer import load_tokenizer

    with open_gguf(locate(model, offline=arguments.offline)) as file:
        tokenizer = load_tokenizer(file.metadata)
        ids = tokenizer.encode(text, add_special=not arguments.no_special, parse_special=arguments.parse_special)
        if arguments.ids:
            write_out(" ".join(map(str, ids)) + "\n")
        elif arguments.json:
            write_out(_as_json(ids, tokenizer))
        else:
            write_out("".join(f"{token:>8}  {_readable(tokenizer.token_bytes(token))}\n" for token in ids))
    return 0


def _read_bytes(word: str | None, arguments: argparse.Namespace) -> bytes:
    given = arguments.prompt if word is None else word
    if given is not None:
        return os.fsencode(given)
    if arguments.file is None and sys.stdin.isatty():
        raise UsageError("no text: give it as an argument, by -p or -f, or pipe it in")
    return read_file(arguments.file or "-")


def _readable(piece: bytes) -> str:
    """A piece in quotes, its line breaks and bytes that are no text escaped."""
    try:
        return repr(piece.decode("utf-8"))
    except UnicodeDecodeError:
        return repr(piece)


def _as_json(ids: list[int], tokenizer: Tokenizer) -> str:
    import json

    rows = []
    for token in ids:
        piece = tokenizer.token_bytes(token)
        try:
            rows.append({"id": token, "piece": piece.decode("utf-8")})
        except UnicodeDecodeError:  # part of a character: its bytes
            rows.append({"id": token, "piece": list(piece)})
    return json.dumps(rows) + "\n"
