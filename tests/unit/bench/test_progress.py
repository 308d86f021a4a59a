from __future__ import annotations

import io

from emel.bench.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_rewrites_one_line_on_a_terminal() -> None:
    terminal = Terminal()
    progress = Progress(terminal)
    progress.show("one")
    progress.clear()
    assert terminal.getvalue() == "\r\x1b[Kone\r\x1b[K"


def test_progress_is_silent_elsewhere() -> None:
    pipe = io.StringIO()
    progress = Progress(pipe)
    progress.show("one")
    progress.clear()
    assert pipe.getvalue() == ""
