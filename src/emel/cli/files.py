"""Files and standard input that commands read whole: within a limit, as some of them (/dev/zero) never end."""

from __future__ import annotations

import argparse
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from emel.errors import EmelError

if TYPE_CHECKING:
    from typing import IO

MOST_BYTES = 256 << 20
"""Of a text; a hundred times what a context holds."""


def read_file(path: str, most: int = MOST_BYTES) -> bytes:
    """The bytes of a file, or of standard input for -; EmelError for more than `most`, OSError."""
    if path == "-":
        return _read(sys.stdin.buffer, "standard input", most)
    with Path(path).open("rb") as file:
        return _read(file, path, most)


def read_regular_file(path: str, most: int) -> bytes:
    """As `read_file`, of what has an end: EmelError for a device, a pipe or a folder, which are not even opened."""
    if not stat.S_ISREG(Path(path).stat().st_mode):
        raise EmelError(f"{path} is no regular file")
    return read_file(path, most)


def text_of_argument(path: str, most: int) -> str:
    """As `read_file`, for a flag that names a text: argparse.ArgumentTypeError for what keeps it from being read."""
    try:
        return read_file(path, most).decode()
    except UnicodeDecodeError:
        raise argparse.ArgumentTypeError(f"{path} is not valid UTF-8") from None
    except (OSError, EmelError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _read(file: IO[bytes], name: str, most: int) -> bytes:
    data = file.read(most + 1)
    if len(data) > most:
        raise EmelError(f"{name} has more than the {most} bytes that are read of it")
    return data
