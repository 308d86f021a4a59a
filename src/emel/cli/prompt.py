"""Where a prompt comes from: the command line, a file, or whatever is piped in."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from emel.cli.arguments import chosen_model
from emel.cli.files import read_file
from emel.cli.terminal import UsageError, say

if TYPE_CHECKING:
    import argparse


def split_words(arguments: argparse.Namespace) -> tuple[str | None, str | None]:
    """Tells MODEL from PROMPT in the words of `[MODEL] [PROMPT]`, given what the flags settle already.

    A single word is the model when the prompt has a flag, and the prompt when the model has one. Otherwise it is the
    model if it can be one, and a prompt if not. Raises UsageError for a word too many, ModelNotFoundError for a single
    word that names no model.
    """
    model, words = chosen_model(arguments), list(arguments.words)
    has_prompt_flag = arguments.prompt is not None or arguments.file is not None
    flagged = [name for name, is_given in (("model", model is not None), ("prompt", has_prompt_flag)) if is_given]
    n_taken = 2 - len(flagged)
    if len(words) == n_taken == (1 if has_prompt_flag else 2) and is_text(words[0]):
        n_taken = 0
    if len(words) > n_taken:
        reason = (
            " and ".join(f"the {name} is given by a flag" for name in flagged) or "one model and one prompt are wanted"
        )
        raise UsageError(f"unexpected argument {words[n_taken]!r}: {reason} (quote a prompt of several words)")
    if words and model is None and (len(words) == 2 or has_prompt_flag or _is_model(words[0])):
        model = words.pop(0)
    return model, words[0] if words else None


def read_prompt(word: str | None, arguments: argparse.Namespace) -> str:
    """The prompt as text: from PROMPT or -p, -f, or standard input when none of them is given and it is piped.

    One line break at the end of a file or of standard input does not belong to it. Raises UsageError when there is no
    prompt, OSError when the file cannot be read.
    """
    if arguments.prompt is not None or word is not None:
        if text := as_text(arguments.prompt if word is None else word):
            return text
        raise UsageError("no prompt: the one given is empty")
    if arguments.file is not None and arguments.file != "-":
        if (text := _decode(read_file(arguments.file), arguments.file)).strip():
            return text
        raise UsageError(f"no prompt: the file {arguments.file!r} is empty")
    if arguments.file is None and sys.stdin.isatty():
        raise UsageError("no prompt: give it as an argument, by -p or -f, or pipe it in (emel chat is interactive)")
    text = _decode(read_file("-"), "standard input")
    if not text.strip():
        raise UsageError("no prompt: none is given by argument, -p or -f, and standard input is empty")
    return text


def as_text(argument: str) -> str:
    """A command-line argument as valid text: bytes that are not UTF-8 become U+FFFD, with a word about it."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return _replace_invalid(os.fsencode(argument), "an argument")
    return argument


def _decode(data: bytes, source: str) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = _replace_invalid(data, source)
    return text.removesuffix("\n").removesuffix("\r")


def _replace_invalid(data: bytes, source: str) -> str:
    say(f"emel: {source} is not valid UTF-8; what is not was replaced by U+FFFD")
    return data.decode("utf-8", "replace")


def is_text(word: str) -> bool:
    """Whether a word can only be meant as a text: it has spaces, and is no model."""
    from emel.engine.models import is_model_reference

    return any(character.isspace() for character in word) and not is_model_reference(word)


def _is_model(word: str) -> bool:
    """Whether a word alone is the model; raises ModelNotFoundError for one that is more likely a mistyped model."""
    from emel.engine.models import is_model_reference, resolve_model
    from emel.errors import ModelNotFoundError

    if is_model_reference(word):
        return True
    if is_text(word):
        return False
    try:
        resolve_model(word)
    except ModelNotFoundError as error:
        raise ModelNotFoundError(str(error), hint=f"if it is the prompt: -p {word}; {error.hint}") from None
    return True
