"""The emel command as a process of its own, with the real engine or with the fake one beside this file."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REAL = (sys.executable, "-m", "emel.cli.main")
FAKE = (sys.executable, str(Path(__file__).with_name("fake_engine.py")))


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


def environment(folder: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment, with a home and a cache of its own and nothing that colours or switches EMEL."""
    ours = {"HOME": str(folder), "EMEL_CACHE": str(folder / "cache"), "PYTHONUTF8": "1"}
    dropped = ("EMEL_DEBUG", "EMEL_OFFLINE", "NO_COLOR", "XDG_CACHE_HOME", "HF_HOME", "HF_ENDPOINT", "HF_TOKEN")
    return {name: value for name, value in os.environ.items() if name not in dropped} | ours | dict(extra or {})


def run_emel(
    *words: str | bytes,
    folder: Path,
    program: Sequence[str] = REAL,
    stdin: str | bytes = b"",
    extra: Mapping[str, str] | None = None,
) -> Outcome:
    """Runs a command line to its end; `stdin` is piped in, stdout and stderr are pipes."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(
        [*program, *words], input=data, capture_output=True, timeout=60, check=False, env=environment(folder, extra)
    )
    return Outcome(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))
