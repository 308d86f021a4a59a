"""The options several commands share, spelled as people type them, with their ranges checked where they are typed."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def whole_number(lowest: int) -> Callable[[str], int]:
    """An argparse type: an integer of at least `lowest`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if value < lowest:
            raise argparse.ArgumentTypeError(f"{value} is below {lowest}, the lowest value allowed")
        return value

    return parse


def number(lowest: float, highest: float = math.inf) -> Callable[[str], float]:
    """An argparse type: a finite number from `lowest` to `highest`, both included."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not (math.isfinite(value) and lowest <= value <= highest):
            allowed = f"{lowest:g} or more" if math.isinf(highest) else f"{lowest:g} to {highest:g}"
            raise argparse.ArgumentTypeError(f"{text} is outside what is allowed, {allowed}")
        return value

    return parse


def _stop_text(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("the text is empty; at least one character is needed")
    return text


def add_model(parser: argparse.ArgumentParser) -> None:
    """`-m`, `-hf` and `--offline`; read them with `chosen_model`."""
    group = parser.add_argument_group("model")
    either = group.add_mutually_exclusive_group()
    either.add_argument(
        "-m", "--model", metavar="MODEL", help="a .gguf file, a built-in name, or hf:owner/repo[:quant]"
    )
    either.add_argument("-hf", "--hf-repo", metavar="OWNER/REPO[:QUANT]", help="the same as -m hf:OWNER/REPO[:QUANT]")
    group.add_argument("--offline", action="store_true", help="never use the network")


def add_session(parser: argparse.ArgumentParser) -> None:
    """`-c`, `-t` and the choice of kernels."""
    group = parser.add_argument_group("session")
    group.add_argument(
        "-c", "--ctx-size", type=whole_number(0), metavar="N", help="tokens of context (0: as many as the model allows)"
    )
    group.add_argument("-t", "--threads", type=whole_number(1), metavar="N", help="threads (default: see emel doctor)")
    group.add_argument("--isa", metavar="NAME", help="kernels to use; every choice gives the same bits")


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """How much to write and how to choose it; what is not given keeps the engine's default."""
    group = parser.add_argument_group("answer")
    group.add_argument(
        "-n", "--predict", type=whole_number(-1), metavar="N", help="most tokens to write (-1: until it ends by itself)"
    )
    group.add_argument("-s", "--seed", type=whole_number(-1), metavar="N", help="seed of the draws (-1: a new one)")
    group.add_argument("--temp", type=number(0.0), metavar="X", help="temperature; 0 always takes the likeliest token")
    group.add_argument("--top-k", type=whole_number(0), metavar="N", help="choose among the N likeliest (0: all)")
    group.add_argument(
        "--top-p", type=number(0.0, 1.0), metavar="X", help="choose among the likeliest making up X (1: all)"
    )
    group.add_argument(
        "--min-p", type=number(0.0, 1.0), metavar="X", help="drop tokens below X times the likeliest (0: none)"
    )
    group.add_argument(
        "--stop", action="append", type=_stop_text, metavar="TEXT", help="end before this text; may be repeated"
    )


def chosen_model(arguments: argparse.Namespace) -> str | None:
    """What `-m` or `-hf` named, or None."""
    if arguments.hf_repo:
        return f"hf:{arguments.hf_repo.removeprefix('hf:')}"
    model: str | None = arguments.model
    return model


def sampling_options(arguments: argparse.Namespace) -> dict[str, object]:
    """The sampling keywords of the Python API that were given on the command line."""
    given = {
        "max_tokens": None if arguments.predict == -1 else arguments.predict,
        "seed": None if arguments.seed == -1 else arguments.seed,
        "temperature": arguments.temp,
        "top_k": arguments.top_k,
        "top_p": arguments.top_p,
        "min_p": arguments.min_p,
        "stop": arguments.stop,
    }
    return {name: value for name, value in given.items() if value is not None}
