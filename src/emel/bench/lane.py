"""An engine in a process of its own, from the benchmark's side."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Self, TypeVar

from emel.bench.protocol import LaneError, Ready, Timings, decode_ready, decode_timings, encode_request
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

T = TypeVar("T")

EMEL, LLAMA_CPP = "EMEL", "llama.cpp"
MODULES = {EMEL: "emel.bench.lane_emel", LLAMA_CPP: "emel.bench.lane_llama_cpp"}
"""The programs that the children are, by the engine's name."""


def lane_command(engine: str, model: Path, n_threads: int, n_ctx: int, options: Sequence[str] = ()) -> list[str]:
    """The command line of an engine's process."""
    return [sys.executable, "-m", MODULES[engine], str(model), str(n_threads), str(n_ctx), *options]


class Lane:
    """A running engine. Not safe to share between threads; close it, or use it as a context manager."""

    def __init__(self, engine: str, command: Sequence[str]) -> None:
        self._engine = engine
        # A session of its own: Ctrl-C reaches the benchmark alone, which then ends its lanes in order.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8", start_new_session=True
        )
        self._ready: Ready | None = None

    @property
    def pid(self) -> int:
        """The process, for what the kernel knows of it."""
        return self._process.pid

    @property
    def ready(self) -> Ready:
        """What the engine says of itself; waits until it has loaded."""
        if self._ready is None:
            self._ready = self._hear(decode_ready)
        return self._ready

    def measure(self, prompt_ids: Sequence[int], n_decode: int) -> Timings:
        """One run; LaneError when the engine fails or ends."""
        _ = self.ready
        self._write(encode_request(prompt_ids, n_decode))
        return self._hear(decode_timings)

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def _hear(self, decode: Callable[[str], T]) -> T:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        try:
            return decode(line)
        except LaneError as error:
            raise LaneError(f"{self._engine}: {error}", hint=error.hint) from error

    def _ended(self) -> LaneError:
        code = self._process.wait()
        if code < 0:
            hint = "memory may have run out" if code == -signal.SIGKILL else None
            return LaneError(f"{self._engine}: its process was killed by {signal.Signals(-code).name}", hint=hint)
        return LaneError(f"{self._engine}: its process ended with code {code} and without an answer")

    def close(self) -> None:
        """Ends the process: at once if it is at work. May be called again."""
        if self._process.poll() is None:
            self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None and not stream.closed:
                with contextlib.suppress(BrokenPipeError):  # a request the process did not live to read
                    stream.close()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class ColdStart:
    """One start of a process up to its first token."""

    seconds: float
    ready_seconds: float
    """Until the model was loaded and could have taken a request."""
    peak_bytes: float


def cold_start(engine: str, command: Sequence[str], prompt_ids: Sequence[int]) -> ColdStart:
    """From starting the process to the first token of the answer to a short prompt.

    The file is in the page cache when anything has read it before; this is not a measurement of the disk.
    """
    began = time.perf_counter()
    with Lane(engine, command) as lane:
        _ = lane.ready
        ready_seconds = time.perf_counter() - began
        timings = lane.measure(prompt_ids, 0)
        return ColdStart(time.perf_counter() - began, ready_seconds, timings.peak_bytes)
