"""KeyboardInterrupts at every place where the interpreter looks for one: what Ctrl-C can do, one after the other.

CPython looks when a Python function begins, after a call of a C function, and where a loop goes back.
"""

from __future__ import annotations

import dis
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


class _Interrupter:
    """A trace function that raises at the `at`-th such place in files whose path has one of `parts`."""

    def __init__(self, at: int, parts: tuple[str, ...]) -> None:
        self.n_left = at
        self._parts = parts
        self._after_call: FrameType | None = None  # the frame whose last instruction may have called a C function

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "call":
            self._after_call = None
            if not any(part in frame.f_code.co_filename for part in self._parts):
                return None
            frame.f_trace_opcodes = True
            self._look()
        elif event == "opcode":
            if self._after_call is frame:
                self._look()
            name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            self._after_call = frame if name.startswith(("CALL", "JUMP_BACKWARD")) else None
        elif event == "return":
            self._after_call = None
        return self

    def _look(self) -> None:
        self.n_left -= 1
        if self.n_left == 0:
            self._after_call = None  # keeps no frame alive
            raise KeyboardInterrupt


def interrupted_runs(
    action: Callable[[], object], *parts: str, first: int = 1, stride: int = 1, most: int = 10_000
) -> Iterator[int]:
    """Runs `action` again and again, with a KeyboardInterrupt at the first, second, third ... place.

    Yields after every run; ends after one that was over before its interrupt came, or after `most` runs.
    """
    for run in range(most):
        interrupter = _Interrupter(first + run * stride, parts)
        before = sys.gettrace()
        sys.settrace(interrupter)
        try:
            action()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        yield interrupter.n_left
        if interrupter.n_left > 0:
            return
    raise AssertionError(f"{most} interrupted runs, and there would be more")
