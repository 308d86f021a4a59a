"""The emel command with a fake engine: `emel.load` gives a model that echoes, and logs what it was asked.

FAKE_LOG       file that gets one JSON line for each call
FAKE_PIECES    how many pieces an answer has (default 3); the answer is "<prompt> 0 1 2 ..."
FAKE_DELAY     seconds between pieces
FAKE_TERMINAL  when set, stdin becomes this session's terminal, so that Ctrl-C typed there is a real one
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import termios
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import emel
from emel.cli.main import main
from emel.engine.conversation import Conversation
from emel.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator


def log(**entry: object) -> None:
    if path := os.environ.get("FAKE_LOG"):
        with open(path, "a", encoding="utf-8") as stream:  # noqa: PTH123
            stream.write(json.dumps(entry, default=str) + "\n")


@dataclass
class FakeTimings:
    n_prompt_tokens: int = 5
    n_tokens: int = 3
    time_to_first_token: float = 0.25
    prefill_tokens_per_second: float = 20.0

    @property
    def decode_tokens_per_second(self) -> float:
        return 8.0 if self.n_tokens > 1 else 0.0


@dataclass
class FakeCompletion:
    text: str
    finish_reason: str
    seed: int
    timings: FakeTimings


@dataclass
class FakeChunk:
    text: str
    completion: FakeCompletion | None = None


class FakeModel:
    def __enter__(self) -> FakeModel:
        return self

    def __exit__(self, *_: object) -> None:
        log(call="close")

    def stream(self, prompt: str, **sampling: object) -> Iterator[FakeChunk]:
        log(call="stream", prompt=prompt, sampling=sampling)
        return self._answer(prompt)

    def chat(self, messages: list[dict[str, str]], *, stream: bool, **sampling: object) -> Iterator[FakeChunk]:
        log(call="chat", messages=messages, stream=stream, sampling=sampling)
        if messages[-1]["content"] == "too long":
            raise RequestError("the prompt has 9000 tokens, the context 2048")
        return self._answer(messages[-1]["content"])

    def session(self, system: str | None, **sampling: object) -> Conversation:
        return Conversation(cast("emel.Model", self), system, sampling)

    def _answer(self, prompt: str) -> Iterator[FakeChunk]:
        n_pieces, delay = int(os.environ.get("FAKE_PIECES", "3")), float(os.environ.get("FAKE_DELAY", "0"))
        ended = "cancelled"
        try:
            yield FakeChunk(prompt)
            for index in range(n_pieces):
                time.sleep(delay)
                yield FakeChunk(f" {index}")
            ended = "length" if n_pieces > 3 else "stop"
            yield FakeChunk("", FakeCompletion(prompt, ended, 1, FakeTimings(n_tokens=n_pieces)))
        finally:
            log(call="end", ended=ended)


def load(path: object, **options: object) -> FakeModel:
    log(call="load", path=path, options=options)
    return FakeModel()


vars(emel)["load"] = load
if __name__ == "__main__":
    if os.environ.get("FAKE_TERMINAL"):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    sys.exit(main())
