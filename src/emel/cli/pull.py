"""`emel pull`: a model into the user's cache; its path on stdout."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from emel.cli.terminal import say, say_note, write_out

if TYPE_CHECKING:
    import argparse

    from emel.engine.models import BuiltinModel


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="built-in name, or hf:owner/repo[:quant][@revision]")
    parser.add_argument("-y", "--yes", action="store_true", help="accept the model's terms, where it has any")
    parser.add_argument("--list", action="store_true", help="list the built-in names and where each one is")
    parser.add_argument(
        "--offline", action="store_true", help="never use the network; fails when the model is not here"
    )
    parser.epilog = "Prints the path of the file. A second time it only checks the file, without the network."


def run(arguments: argparse.Namespace) -> int:
    """Fetches and prints the path, or lists the names."""
    from emel.engine.models import DEFAULT_MODEL, FetchPolicy, resolve_model

    if arguments.list:
        write_out(_list())
        return 0
    policy = FetchPolicy(
        offline=arguments.offline or FetchPolicy().offline,
        refresh=True,
        accept_terms=lambda model: _accept(model, yes=arguments.yes),
        notify=lambda text: say_note(f"emel: {text}"),
    )
    write_out(f"{resolve_model(arguments.name or DEFAULT_MODEL, policy)}\n")
    return 0


def _accept(model: BuiltinModel, *, yes: bool) -> bool:
    say(f"{model.name}: {model.terms}")
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    sys.stderr.write("Do you accept these terms? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _list() -> str:
    from emel.engine.models import BUILTIN_MODELS, builtin_path

    lines = []
    for model in BUILTIN_MODELS:
        names = ", ".join((model.name, *model.aliases))
        where = builtin_path(model) or "not fetched"
        lines.append(f"{names}\t{model.summary}\t{model.n_bytes / 1e6:.0f} MB\t{model.license}\t{where}\n")
    return "".join(lines)
