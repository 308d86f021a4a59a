"""The options that say what an answer must obey, named as llama.cpp names them where it has them."""

from __future__ import annotations

import argparse
from typing import Any

from emel.cli.files import text_of_argument

_MOST_BYTES = 4 << 20  # more than a constraint may have characters


def add_constraints(parser: argparse.ArgumentParser) -> None:
    """`--json-schema`, `--grammar`, both also from a file, `--regex` and `--choice`: at most one of them."""
    group = parser.add_argument_group("what the answer must obey (one of them)").add_mutually_exclusive_group()
    group.add_argument(
        "-j",
        "--json-schema",
        type=_schema,
        metavar="SCHEMA",
        help="JSON of this JSON schema ({}: any object)",
    )
    group.add_argument(
        "-jf",
        "--json-schema-file",
        dest="json_schema",
        type=lambda path: _schema(text_of_argument(path, _MOST_BYTES)),
        metavar="FILE",
        help="the same, from a file",
    )
    group.add_argument("--grammar", type=_given, metavar="GBNF", help="a grammar, as llama.cpp has them")
    group.add_argument(
        "--grammar-file",
        dest="grammar",
        type=lambda path: _given(text_of_argument(path, _MOST_BYTES)),
        metavar="FILE",
        help="the same, from a file",
    )
    group.add_argument("--regex", type=_given, metavar="PATTERN", help="a regular expression for the whole answer")
    group.add_argument(
        "--choice", action="append", type=_given, metavar="TEXT", help="one of these texts; may be repeated"
    )


def constraint_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The keyword of the Python API that was given on the command line, if one was."""
    given = {name: getattr(arguments, name) for name in ("json_schema", "grammar", "regex", "choice")}
    return {name: value for name, value in given.items() if value is not None}


def _schema(text: str) -> Any:
    import json

    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = "; -jf takes a file" if text.endswith(".json") else ""
        raise argparse.ArgumentTypeError(f"it is no JSON: {error}{where}") from None
    if not isinstance(found, dict | bool):
        raise argparse.ArgumentTypeError("it must be a JSON schema, an object")
    return found


def _given(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("it is empty; at least one character is needed")
    return text
