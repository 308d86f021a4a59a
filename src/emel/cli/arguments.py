"""The options several commands share, spelled as people type them, with their ranges checked where they are typed."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from emel.text.errors import shown

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_TEMPLATE_BYTES = 1 << 20


def whole_number(lowest: int, highest: float = math.inf) -> Callable[[str], int]:
    """An argparse type: an integer from `lowest` to `highest`, both included."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{shown(text)} is not a whole number") from None
        if value < lowest:
            raise argparse.ArgumentTypeError(f"{shown(value)} is below {lowest}, the lowest value allowed")
        if value > highest:
            raise argparse.ArgumentTypeError(f"{shown(value)} is above {highest}, the highest value allowed")
        return value

    return parse


def number(lowest: float, highest: float = math.inf) -> Callable[[str], float]:
    """An argparse type: a finite number from `lowest` to `highest`, both included."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{shown(text)} is not a number") from None
        if not (math.isfinite(value) and lowest <= value <= highest):
            allowed = f"{lowest:g} or more" if math.isinf(highest) else f"{lowest:g} to {highest:g}"
            raise argparse.ArgumentTypeError(f"{text:.60} is outside what is allowed, {allowed}")
        return value

    return parse


def memory_amount(text: str) -> str:
    """An argparse type: an amount of memory or a share of it, as typed."""
    from emel.engine.amounts import parse_memory
    from emel.errors import RequestError

    try:
        parse_memory(text)
    except RequestError as error:
        raise argparse.ArgumentTypeError(f"{str(error).removeprefix('memory is ')}: {error.hint}") from None
    return text


def byte_amount(text: str) -> int:
    """An argparse type: bytes, 1 or more, with a unit or without."""
    from emel.engine.amounts import parse_bytes

    n_bytes = parse_bytes(text)
    if n_bytes is None:
        raise argparse.ArgumentTypeError(f"{shown(text)} is no amount: give bytes, or such as 10MiB")
    if n_bytes < 1:
        raise argparse.ArgumentTypeError(f"{shown(text)} is below 1 byte, the lowest value allowed")
    return n_bytes


def metadata_override(text: str) -> tuple[str, int | float | bool | str]:
    """An argparse type: KEY=TYPE:VALUE."""
    from emel.gguf import MetadataError, parse_override

    try:
        return parse_override(text)
    except MetadataError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def speculation(text: str) -> str | None:
    """An argparse type: "lookup", or "off" for None."""
    if text not in ("lookup", "off"):
        raise argparse.ArgumentTypeError(f"{text:.60} is neither lookup nor off")
    return None if text == "off" else text


def scaled_adapter(text: str) -> tuple[str, float]:
    """An argparse type: FILE:SCALE."""
    path, colon, scale = text.rpartition(":")
    if not (colon and path):
        raise argparse.ArgumentTypeError(f"{shown(text)} has no scale: FILE:SCALE is wanted, such as adapter.gguf:0.5")
    return path, number(-math.inf)(scale)


def add_adapters(parser: argparse.ArgumentParser) -> None:
    """`--lora` and `--lora-scaled`, both in the one list `lora`, in their order."""
    group = parser.add_argument_group("adapters")
    group.add_argument(
        "--lora",
        action="append",
        default=[],
        metavar="FILE",
        help="merge this LoRA adapter (GGUF) into the weights; more than one may be given",
    )
    group.add_argument(
        "--lora-scaled",
        action="append",
        type=scaled_adapter,
        dest="lora",
        metavar="FILE:SCALE",
        help="the same, SCALE times as strong",
    )


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
        "-c",
        "--ctx-size",
        type=whole_number(0),
        metavar="N",
        help="tokens of context (default: 4096, or fewer if the model or --memory has them; 0: all of the model)",
    )
    group.add_argument("-t", "--threads", type=whole_number(1), metavar="N", help="threads (default: see emel doctor)")
    group.add_argument(
        "--memory",
        type=memory_amount,
        metavar="AMOUNT",
        help="what the model may take, such as 2GiB, or 50%% of what is available; what does not fit is streamed",
    )
    group.add_argument("--isa", metavar="NAME", help="kernels to use; every choice gives the same bits")
    group.add_argument(
        "--kv-type",
        choices=("f16", "f32", "q8_0"),
        metavar="TYPE",
        help="numbers of keys and values: f16 (default), f32 (twice the memory, not rounded), q8_0 (half, less exact)",
    )
    group.add_argument(
        "--activations",
        choices=("int16", "int8"),
        help="round values to 16 bits (default), or to 8: prompts faster, answers less exact and with other bits",
    )
    group.add_argument(
        "--speculation",
        type=speculation,
        default="lookup",
        metavar="HOW",
        help="lookup (default): guess what repeats, where that is faster, with the same answers; off: never guess",
    )
    group.add_argument(
        "-md",
        "--draft-model",
        metavar="MODEL",
        help="a smaller model of the same vocabulary that guesses what comes next; the answers are the same",
    )
    group.add_argument(
        "--override-kv",
        type=metadata_override,
        action="append",
        default=[],
        metavar="KEY=TYPE:VALUE",
        help="metadata in place of the file's; types: int, float, bool, str; more than one may be given",
    )
    _add_chat_template(group)
    add_adapters(parser)


def _add_chat_template(group: argparse._ArgumentGroup) -> None:
    either = group.add_mutually_exclusive_group()
    either.add_argument(
        "--chat-template",
        type=_chat_template,
        metavar="NAME|JINJA",
        help="how chats are written, in place of what the file says: chatml, llama3, gemma ..., or Jinja",
    )
    either.add_argument(
        "--chat-template-file",
        dest="chat_template",
        type=_chat_template_of,
        metavar="FILE",
        help="the same, Jinja from a file",
    )


def add_template_variables(parser: argparse.ArgumentParser) -> None:
    """`--chat-template-kwargs`, for commands that write one chat; read it with `template_variables`."""
    parser.add_argument(
        "--chat-template-kwargs",
        type=_template_variables,
        metavar="JSON",
        help="variables of the chat template, such as '{\"enable_thinking\": false}'",
    )


def template_variables(arguments: argparse.Namespace) -> dict[str, Any]:
    """The keyword of the Python API for them, if there are any."""
    given = arguments.chat_template_kwargs
    return {} if given is None else {"chat_template_kwargs": given}


def _template_variables(text: str) -> dict[str, Any]:
    import json

    from emel.engine.arguments import checked_template_variables
    from emel.errors import RequestError

    try:
        return checked_template_variables(json.loads(text))
    except RequestError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"it is no JSON: {error}") from None


def _chat_template(text: str) -> str:
    from emel.engine.arguments import checked_chat_template
    from emel.errors import RequestError

    try:
        checked_chat_template(text)
    except RequestError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("chat_template is ")) from None
    return text


def _chat_template_of(path: str) -> str:
    from emel.cli.files import text_of_argument

    return _chat_template(text_of_argument(path, _MOST_TEMPLATE_BYTES))


def chosen_model(arguments: argparse.Namespace) -> str | None:
    """What `-m` or `-hf` named, or None."""
    if arguments.hf_repo:
        return f"hf:{arguments.hf_repo.removeprefix('hf:')}"
    model: str | None = arguments.model
    return model
