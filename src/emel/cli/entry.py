"""The entry point of the process: Ctrl-C ends a command with exit code 130 from here on, imports or not.

Python raises KeyboardInterrupt wherever it happens to be. Within importlib that may be a callback whose exceptions are
printed and dropped, or between a lock of a module and its release, for which a loading thread then waits forever. So an
interrupt that comes there comes again a little later. This module imports next to nothing: until it has run, Ctrl-C
shows a traceback.
"""

from __future__ import annotations

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

EXIT_INTERRUPTED = 130
_LATER_SECONDS = 0.01
_IMPORTLIB = "<frozen importlib"


def main() -> int:
    """Runs the command line of this process and returns its exit code."""
    try:
        _take_interrupts()
        from emel.cli.main import main as run_command_line

        return run_command_line()
    except KeyboardInterrupt:  # before it began, or while it said how it ended
        return EXIT_INTERRUPTED
    finally:
        _leave_interrupts()


def _take_interrupts() -> None:
    """Unless whoever started this process has SIGINT ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGALRM, _interrupt)
        signal.signal(signal.SIGINT, _interrupt)


def _leave_interrupts() -> None:
    """All is said and done: what SIGINT can still interrupt is the interpreter's own end, which would show it."""
    if signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, 0)


def _interrupt(_number: int, frame: FrameType | None) -> None:
    if _is_importing(frame):
        signal.setitimer(signal.ITIMER_REAL, _LATER_SECONDS)
        return
    raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith(_IMPORTLIB):
            return True
        frame = frame.f_back
    return False
