"""The options of an answer: how much to write, and how its tokens are chosen, named as llama.cpp names them.

Ranges are those of emel.text.sampling, which is imported when an option is given: `--help` does not wait for it.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

from emel.cli.arguments import number, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable

# Flags, the field of SamplingParams, what stands for the value, help.
NUMBERS: tuple[tuple[tuple[str, ...], str, str, str], ...] = (
    (("--temp", "--temperature"), "temperature", "X", "temperature; 0 always takes the likeliest token"),
    (("--top-k",), "top_k", "N", "choose among the N likeliest (0: all)"),
    (("--top-p",), "top_p", "X", "choose among the likeliest making up X (1: all)"),
    (("--min-p",), "min_p", "X", "drop tokens below X times the likeliest (0: none)"),
    (("--typical", "--typical-p"), "typical_p", "X", "choose among the most typical making up X (1: all)"),
    (("--top-nsigma", "--top-n-sigma"), "top_n_sigma", "X", "drop logits X deviations below the largest (0: none)"),
    (("--xtc-probability",), "xtc_probability", "X", "how often to drop the likeliest (0: never)"),
    (("--xtc-threshold",), "xtc_threshold", "X", "how likely tokens are that XTC drops"),
    (("--dynatemp-range",), "dynatemp_range", "X", "move the temperature by X with the entropy (0: not)"),
    (("--dynatemp-exp",), "dynatemp_exponent", "X", "how the entropy maps to that range"),
    (("--repeat-penalty",), "repeat_penalty", "X", "divide logits of recent tokens by X (1: not)"),
    (("--repeat-last-n",), "repeat_last_n", "N", "how many tokens are recent (-1: all)"),
    (("--presence-penalty",), "presence_penalty", "X", "take X off logits of recent tokens"),
    (("--frequency-penalty",), "frequency_penalty", "X", "the same, as often as a token came"),
    (("--dry-multiplier",), "dry_multiplier", "X", "what going on with a repetition costs (0: nothing)"),
    (("--dry-base",), "dry_base", "X", "how the cost grows with each token repeated"),
    (("--dry-allowed-length",), "dry_allowed_length", "N", "tokens that may be repeated at little cost"),
    (("--dry-penalty-last-n",), "dry_penalty_last_n", "N", "tokens looked through for repetitions (-1: all)"),
    (("--mirostat",), "mirostat", "N", "hold the surprise by Mirostat 1 or 2, in place of the steps (0: off)"),
    (("--mirostat-ent",), "mirostat_tau", "X", "the surprise wanted, in bits"),
    (("--mirostat-lr",), "mirostat_eta", "X", "how fast it is approached"),
    (("--min-keep",), "min_keep", "N", "tokens that the cuts by probability leave at least"),
    (("--min-tokens",), "min_tokens", "N", "do not end before N tokens"),
)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_OTHERS = ("dry_sequence_breakers", "samplers", "logit_bias", "ignore_eos")


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """How much to write and how to choose it; what is not given keeps the engine's default."""
    group = parser.add_argument_group("answer")
    group.add_argument(
        "-n",
        "--predict",
        "--n-predict",
        "--max-tokens",
        type=whole_number(-1),
        metavar="N",
        help="most tokens to write (-1: until it ends by itself)",
    )
    group.add_argument("-s", "--seed", type=_seed, metavar="N", help="seed of the draws (-1: a new one)")
    group.add_argument(
        "-r",
        "--stop",
        "--reverse-prompt",
        action="append",
        type=_stop_text,
        metavar="TEXT",
        help="end before this text; may be repeated",
    )
    group.add_argument(
        "--ignore-eos", action="store_const", const=True, help="never choose a token that ends the answer"
    )
    group = parser.add_argument_group("sampling")
    for flags, name, metavar, text in NUMBERS:
        group.add_argument(*flags, dest=name, type=_number(name), metavar=metavar, help=text)
    group.add_argument(
        "--dry-sequence-breaker",
        dest="dry_sequence_breakers",
        action="append",
        type=_breaker,
        metavar="TEXT",
        help="repetitions end at this text, in place of the usual ones; may be repeated (none: at no text)",
    )
    steps = group.add_mutually_exclusive_group()
    steps.add_argument(
        "--samplers",
        dest="samplers",
        type=_steps,
        metavar="NAMES",
        help="the steps in their order, with ; between them",
    )
    steps.add_argument(
        "--sampler-seq", "--sampling-seq", dest="samplers", type=_steps, metavar="LETTERS", help="the same by letters"
    )
    group.add_argument(
        "-l",
        "--logit-bias",
        dest="logit_bias",
        action="append",
        type=_logit_bias,
        metavar="ID+X",
        help="add to a token's logit, as 15043+1 or 15043-1 (15043-inf: never); may be repeated",
    )


def sampling_options(arguments: argparse.Namespace) -> dict[str, object]:
    """The sampling keywords of the Python API that were given on the command line."""
    given = {
        "max_tokens": None if arguments.predict == -1 else arguments.predict,
        "seed": None if arguments.seed == -1 else arguments.seed,
        "stop": arguments.stop,
        **{name: getattr(arguments, name) for _, name, _, _ in NUMBERS},
        **{name: getattr(arguments, name) for name in _OTHERS},
    }
    if given["dry_sequence_breakers"] is not None:
        given["dry_sequence_breakers"] = [each for each in arguments.dry_sequence_breakers if each is not None]
    return {name: value for name, value in given.items() if value is not None}


def _kind(name: str) -> Any:
    from dataclasses import fields

    from emel.text.sampling import SamplingParams

    return next(each.metadata["kind"] for each in fields(SamplingParams) if each.name == name)


def _number(name: str) -> Callable[[str], float]:
    """An argparse type: a number of the field's range."""

    def parse(text: str) -> float:
        kind = _kind(name)
        return (whole_number if kind.kind is int else number)(kind.low, kind.high)(text)

    return parse


def _seed(text: str) -> int:
    return whole_number(-1, _kind("seed").high)(text)


def _checked(name: str, value: object) -> Any:
    """The field's value of what was typed."""
    from emel.text.sampling import SamplingError

    try:
        return _kind(name).check(name, value)
    except SamplingError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix(f"{name} is ")) from None


def _steps(text: str) -> list[str]:
    return list(_checked("samplers", text))


def _breaker(text: str) -> str | None:
    """The text, with \\n and its like read as what they stand for; None for none."""
    if text == "none":
        return None
    plain = re.sub(r"\\([nrt\\'\"])", lambda match: _ESCAPES.get(match[1], match[1]), text)
    return str(_checked("dry_sequence_breakers", plain)[0])


def _logit_bias(text: str) -> tuple[int, float | bool]:
    match = re.fullmatch(r"(\d+)([+-].+)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no token id followed by + or - and a number, as 15043-1.5")
    if match[2] == "-inf":
        return int(match[1]), False
    value = number(-_kind("logit_bias").largest, _kind("logit_bias").largest)(match[2])
    return int(match[1]), value


def _stop_text(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("the text is empty; at least one character is needed")
    return text
