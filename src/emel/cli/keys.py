"""The keys that open a server: of a flag, of the environment, or of a file. What is given and has none is refused."""

from __future__ import annotations

import os
import re

from emel.cli.files import read_file
from emel.cli.terminal import UsageError
from emel.errors import EmelError

_MOST_KEY_BYTES = 1 << 20
_COMMENT = re.compile(r"(?:^|\s)#.*")


def given_keys(text: str | None, path: str | None) -> tuple[str, ...]:
    """The keys of `--api-key` (or else of EMEL_API_KEY) and `--api-key-file`; UsageError for one without any."""
    keys: list[str] = []
    if text is not None:
        keys += _keys_of_text(text, "--api-key was given")
    elif (text := os.environ.get("EMEL_API_KEY")) is not None:
        keys += _keys_of_text(text, "EMEL_API_KEY is set")
    if path is not None:
        keys += _keys_of_file(path)
    return tuple(keys)


def _keys_of_text(text: str, told: str) -> list[str]:
    keys = [each.strip() for each in text.split(",") if each.strip()]
    if not keys:
        raise UsageError(f"{told}, but there is no key in it")
    if any(len(each.split()) > 1 for each in keys):
        raise UsageError(f"{told}, but a key has no white space: a comma stands between two")
    return keys


def _keys_of_file(path: str) -> list[str]:
    keys = []
    for number, line in enumerate(_lines(path), 1):
        words = _COMMENT.sub("", line).split()
        if len(words) > 1:
            raise UsageError(f"--api-key-file {path}, line {number}: a key has no white space: one stands on each line")
        keys += words
    if not keys:
        raise UsageError(f"--api-key-file {path}: there is no key in it")
    return keys


def _lines(path: str) -> list[str]:
    try:
        return read_file(path, _MOST_KEY_BYTES).decode("utf-8-sig").split("\n")
    except UnicodeDecodeError:
        raise UsageError(f"--api-key-file {path} is not valid UTF-8") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise UsageError(f"--api-key-file {path}: {(reason or str(error)).lower()}") from None
    except EmelError as error:
        raise UsageError(f"--api-key-file: {error}") from None
