"""Whether a grammar can be compiled in reasonable time and memory: tried in a process of its own, which can be ended.

Compiling is exponential for some schemas that fit in a tweet, whatever limits llguidance is given, and a thread that
does it cannot be stopped. A grammar that passes here is compiled in the engine, for the model's vocabulary.

Both sides speak messages of a length (4 bytes, little-endian) and that many bytes of UTF-8: a grammar there, its error
back, empty for none.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from emel.errors import EmelError, RequestError

if TYPE_CHECKING:
    from llguidance._lib import LLParserLimits

MAX_SECONDS = 5.0
"""What a grammar may take."""
_MAX_WAIT_SECONDS = 15.0
_MAX_START_SECONDS = 60.0
_MAX_ALONE_SECONDS = 60
_MAX_BYTES = 2 << 30  # address space of the process
_LENGTH = struct.Struct("<I")


def limits() -> LLParserLimits:
    """What a grammar may take in the parser: at most some milliseconds for a mask, which all lanes wait for."""
    from llguidance._lib import LLParserLimits

    return LLParserLimits(
        initial_lexer_fuel=300_000, step_lexer_fuel=100_000, step_max_items=20_000, max_lexer_states=50_000
    )


class CheckerBusyError(RequestError):
    """A grammar could not be checked in time because of others; later it can be."""


class GrammarChecker:
    """The other process; it is started when it is first needed, and again after it had to be ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._forget)

    def check(self, grammar: str, max_seconds: float | None = None) -> str:
        """What is wrong with it, "" for nothing; CheckerBusyError when too many others are checked."""
        seconds = MAX_SECONDS if max_seconds is None else max_seconds
        if not self._lock.acquire(timeout=_MAX_WAIT_SECONDS):
            raise CheckerBusyError("other constraints are being compiled: try again later")
        try:
            process = self._running() or self._start()
            assert process.stdin is not None
            assert process.stdout is not None
            _write(process.stdin, grammar)
            return _read_within(process.stdout, seconds)
        except TimeoutError:
            self._end()
            return f"it takes longer than {seconds:g} seconds to compile"
        except (OSError, EOFError):
            self._end()
            return "it takes too much memory to compile"
        except BaseException:  # interrupted: the answer would be taken for that to the next question
            self._end()
            raise
        finally:
            self._lock.release()

    def close(self) -> None:
        """Ends the process."""
        with self._lock:
            self._end()

    def _running(self) -> subprocess.Popen[bytes] | None:
        """The process, unless somebody ended it since the last grammar: the next is not to blame for that."""
        if self._process is not None and self._process.poll() is not None:
            self._end()
        return self._process

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "emel.engine.grammar_check"]  # -P: nothing of the working directory
        path = [str(Path(__file__).parents[2]), *filter(os.path.isabs, sys.path)]
        process = self._process = subprocess.Popen(  # noqa: S603 - no word of it is from elsewhere
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        )
        assert process.stdout is not None
        try:
            _read_within(process.stdout, _MAX_START_SECONDS)
        except (OSError, EOFError):  # TimeoutError is one
            self._end()
            raise EmelError("the process that tries constraints could not be started") from None
        return process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with contextlib.suppress(OSError), process:  # closes its pipes, and waits for it
                pass

    def _forget(self) -> None:
        """In a process that forked: the other one belongs to its parent, and so do the pipes to it."""
        self._lock = threading.Lock()
        process, self._process = self._process, None
        if process is not None:
            process.returncode = 0  # not ours to wait for
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()


CHECKER = GrammarChecker()


def _write(stream: IO[bytes], text: str) -> None:
    data = text.encode()
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def _read(stream: Any) -> str:
    """EOFError when the other side is gone."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (n_bytes,) = _LENGTH.unpack(head)
    return str(stream.read(n_bytes), "utf-8")


def _read_within(stream: IO[bytes], seconds: float) -> str:
    """A message, if it begins within so many seconds; else TimeoutError."""
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    if not poll.poll(1e3 * seconds):
        raise TimeoutError
    return _read(stream)


def main() -> None:
    """The other side: checks until nobody asks any more."""
    import resource
    import signal

    from llguidance import LLMatcher, LLTokenizer

    for each in (signal.SIGINT, signal.SIGTERM):  # of a service: the engine ends this process
        signal.signal(each, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_BYTES, _MAX_BYTES))
    tokenizer = LLTokenizer("byte")
    inner, outer = sys.stdin.buffer, sys.stdout.buffer
    _write(outer, "")
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            grammar = _read(inner)
            signal.alarm(_MAX_ALONE_SECONDS)  # whoever asked may be gone without a word
            is_error, messages = LLMatcher.validate_grammar_with_warnings(grammar, limits=limits())
            reason = messages[0] if is_error else ""
            if not is_error:  # what a lexer is made of is computed for a vocabulary: for bytes, as long as for another
                reason = LLMatcher(tokenizer, grammar, log_level=0, limits=limits()).get_error()
            signal.alarm(0)
            _write(outer, reason[:2000])


if __name__ == "__main__":
    main()
