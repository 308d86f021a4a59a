"""A child that speaks the protocol without an engine: `fake_lane.py BEHAVIOUR`."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from emel.bench.protocol import Ready, Timings, private_stdout, serve

if TYPE_CHECKING:
    from collections.abc import Sequence


class FakeEngine:
    """Takes a millisecond a prompt token and a hundredth of a second a decoded one, or misbehaves."""

    def __init__(self, behaviour: str) -> None:
        self.behaviour = behaviour
        if behaviour == "fails-to-load":
            raise ValueError("no such model")
        if behaviour == "dies-loading":
            os._exit(3)

    def describe(self) -> Ready:
        return Ready("fake", "1.2", "scalar", 100)

    def measure(self, prompt_ids: Sequence[int], n_decode: int) -> Timings:
        if self.behaviour == "fails":
            raise RuntimeError("the seventh layer is not finite")
        if self.behaviour == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.behaviour == "prints":
            print("a library says hello", flush=True)  # noqa: T201 - the point
            os.write(1, b"and so does C\n")
        return Timings(len(prompt_ids) / 1000, n_decode / 100)


if __name__ == "__main__":
    if sys.argv[1] == "babbles":
        print("hello", flush=True)  # noqa: T201 - the point
        sys.stdin.read()
    else:
        answers = private_stdout()
        sys.exit(serve(lambda: FakeEngine(sys.argv[1]), sys.stdin, answers))
