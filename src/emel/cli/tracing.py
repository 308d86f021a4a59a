"""`--trace`: what the machines do while a command runs, into a file."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator


def add_trace(parser: argparse.ArgumentParser) -> None:
    """The option; `traced` obeys it."""
    parser.add_argument(
        "--trace",
        metavar="FILE",
        help="record every step of the state machines (.json, .perfetto: for ui.perfetto.dev; else JSON lines)",
    )


@contextmanager
def traced(arguments: argparse.Namespace) -> Iterator[None]:
    """Records while the block runs, if it was asked for. OSError when the file cannot be written."""
    if arguments.trace is None:
        yield
        return
    from emel.sm.trace import trace
    from emel.sm.trace_files import open_trace

    with open_trace(arguments.trace) as sink, trace(sink):
        yield
