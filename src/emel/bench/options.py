"""Options that several suites share, and how their values are read."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from emel.errors import EmelError

if TYPE_CHECKING:
    from collections.abc import Callable

INSTALL_HINT = "install it with: pip install 'emel[bench]' (llama-cpp-python is compiled, which takes some minutes)"


def add_model(parser: argparse.ArgumentParser | argparse._ArgumentGroup, purpose: str = "") -> None:
    """Adds --model; `model_path` reads it."""
    parser.add_argument("-m", "--model", metavar="MODEL", help=f"{purpose}a .gguf file or a known name")


def model_path(arguments: argparse.Namespace) -> Path:
    """The file that --model names (the default model without it), fetched when it has to be. Errors: EmelError."""
    from emel.engine.models import DEFAULT_MODEL, resolve_model

    return resolve_model(arguments.model or DEFAULT_MODEL)


def add_threads(parser: argparse.ArgumentParser) -> None:
    """Adds --threads: None, or a tuple of counts."""
    parser.add_argument(
        "-t", "--threads", type=counts(1), metavar="N,N", help="thread counts (default: 1 and all CPUs)"
    )


def add_activations(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Adds --activations: "int16" or "int8"."""
    parser.add_argument(
        "--activations", choices=("int16", "int8"), default="int16", help="what activations are rounded to (int16)"
    )


def add_measurement(parser: argparse.ArgumentParser, what: str) -> argparse._ArgumentGroup:
    """Adds --runs and --warmup of `what`; returns their group for more."""
    group = parser.add_argument_group("measurement")
    group.add_argument("--runs", type=count(1), default=5, metavar="N", help=f"runs of each {what} (5)")
    group.add_argument("--warmup", type=count(0), default=1, metavar="N", help="runs before those, not counted (1)")
    return group


def add_output(parser: argparse.ArgumentParser, *, has_plot: bool) -> None:
    """Adds --json and, where there is something to draw, --plot."""
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print JSON with every sample, not a table")
    if has_plot:
        group.add_argument("--plot", type=Path, metavar="FILE", help="also draw the results (needs emel[bench])")


def check_plot(path: Path | None) -> None:
    """EmelError, before anything is measured, when the picture could not be written."""
    if path is not None:
        require("matplotlib", "matplotlib", "--plot")
        if not path.parent.is_dir():
            raise EmelError(f"--plot: there is no folder {str(path.parent)!r}")


def require(module: str, package: str, flag: str) -> None:
    """EmelError that says what to install unless `module` can be imported."""
    if importlib.util.find_spec(module) is None:
        raise EmelError(f"{flag} needs {package}, which is not installed", hint=INSTALL_HINT)


def count(lowest: int) -> Callable[[str], int]:
    """A reader of one whole number from `lowest` up."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if value < lowest:
            raise argparse.ArgumentTypeError(f"{value} is below {lowest}")
        return value

    return parse


def counts(lowest: int) -> Callable[[str], tuple[int, ...]]:
    """A reader of whole numbers separated by commas: each once, in the order given."""
    parse_one = count(lowest)

    def parse(text: str) -> tuple[int, ...]:
        return tuple(dict.fromkeys(parse_one(part.strip()) for part in text.split(",")))

    return parse


def multiple_of_256(text: str) -> int:
    """Reads a whole number of the largest blocks of a format."""
    value = count(256)(text)
    if value % 256:
        raise argparse.ArgumentTypeError(f"{value} is not a multiple of 256, the largest block")
    return value
