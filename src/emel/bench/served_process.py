"""`emel serve` in a process of its own, from the benchmark's side: its start, its streams, the time of its loop."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from emel.errors import EmelError
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

_START_SECONDS = 300.0
_END_SECONDS = 60.0
_PATH = "/v1/completions"


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from starting the process, and seconds of CPU of all its threads (None where the system does not say)."""

    listening: float
    """Until a request was answered, be it that the model is being loaded."""
    ready: float
    """Until the model was loaded."""
    listening_cpu: float | None
    ready_cpu: float | None


class ServedProcess:
    """A running server. Close it, or use it as a context manager."""

    def __init__(self, model: Path, options: Sequence[str]) -> None:
        """Returns once the model is loaded. EmelError when the server does not come up."""
        began = time.perf_counter()
        command = [sys.executable, "-m", "emel", "serve", str(model), "--port", "0", *options]
        # A session of its own: Ctrl-C reaches the benchmark alone, which then ends the server.
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, encoding="utf-8", start_new_session=True)
        self._draining = threading.Thread(target=self._drain, daemon=True)
        try:
            self.host, self.port = self._address()
            self._draining.start()
            self._health()
            listening, listening_cpu = time.perf_counter() - began, self._cpu()
            self._await_model()
            self.start = Start(listening, time.perf_counter() - began, listening_cpu, self._cpu())
        except BaseException:
            self.close()
            raise

    def _await_model(self) -> None:
        deadline = time.perf_counter() + _START_SECONDS
        while self._health() != 200:
            if time.perf_counter() > deadline:
                raise EmelError(f"the server had not loaded its model after {_START_SECONDS:g} s")
            time.sleep(0.01)

    def _address(self) -> tuple[str, int]:
        assert self._process.stderr is not None
        said = []
        for line in self._process.stderr:
            if (found := re.search(r"http://([\d.]+):(\d+)", line)) is not None:
                return found[1], int(found[2])
            said.append(line.strip())
        raise EmelError(f"the server did not start: {' '.join(said)[-300:]}")

    def _drain(self) -> None:
        """Reads what it logs, so that it never waits for that."""
        assert self._process.stderr is not None
        for _ in self._process.stderr:
            pass

    def _health(self) -> int:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=_START_SECONDS)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status
        except OSError as error:
            raise EmelError(f"the server does not answer: {error}") from error
        finally:
            connection.close()

    def _cpu(self) -> float | None:
        """Seconds of all threads (proc(5): utime and stime)."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def loop_cpu(self) -> float:
        """Seconds that the thread of HTTP and of all events ran, the process's first. EmelError where nobody says."""
        path = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/schedstat")
        try:
            return int(path.read_text(encoding="ascii").split()[0]) / 1e9
        except OSError as error:
            raise EmelError(f"this system does not tell the time of threads ({path}): use Linux") from error

    def stream(self, prompts: Sequence[str], n_tokens: int) -> int:
        """Answers of so many tokens to all prompts at once, streamed; returns how many events came."""
        return asyncio.run(self._stream_all(prompts, n_tokens))

    async def _stream_all(self, prompts: Sequence[str], n_tokens: int) -> int:
        return sum(await asyncio.gather(*(self._stream(prompt, n_tokens) for prompt in prompts)))

    async def _stream(self, prompt: str, n_tokens: int) -> int:
        asked = {"prompt": prompt, "max_tokens": n_tokens, "ignore_eos": True, "temperature": 0, "stream": True}
        body = json.dumps({**asked, "cache_prompt": False}).encode()
        head = f"POST {_PATH} HTTP/1.1\r\nhost: bench\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write(head.encode() + body)
            received = await reader.read()
        finally:
            writer.close()
        if not received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
            raise EmelError(f"a stream broke off: {received[-300:]!r}")
        return received.count(b"\ndata: ")

    def close(self) -> None:
        """Ends the server, by force where it does not."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        if self._draining.ident is not None:
            self._draining.join()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
