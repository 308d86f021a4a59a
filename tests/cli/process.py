"""The emel command as a process of its own, with the real engine or with the fake one beside this file."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REAL = (sys.executable, "-m", "emel")
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


class Terminal:
    """The fake emel on a pseudo-terminal of its own session, so that Ctrl-C typed there is a real one."""

    def __init__(self, folder: Path, words: list[str], extra: dict[str, str]) -> None:
        self.ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [*FAKE, *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env=environment(folder, {"TERM": "dumb", "FAKE_TERMINAL": "1", **extra}),
        )
        os.close(theirs)
        self.seen = ""

    def read_until(self, text: str) -> None:
        deadline = time.monotonic() + 30
        while text not in self.seen:
            ready, _, _ = select.select([self.ours], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{text!r} did not come; there is {self.seen!r}"
            self.seen += os.read(self.ours, 4096).decode()
        self.seen = self.seen.partition(text)[2]

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def interrupt_prompt(self, reply: str) -> None:
        """Types Ctrl-C at a prompt until `reply` comes: one between prompt and read waits, in Python, for the next."""
        for _ in range(30):
            self.type("\x03")
            ready, _, _ = select.select([self.ours], [], [], 1.0)
            if ready:
                break
        self.read_until(reply)

    def end(self) -> int:
        try:
            return self.process.wait(timeout=30)
        finally:
            self.process.kill()
            self.process.wait()
            os.close(self.ours)
