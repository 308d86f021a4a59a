"""`emel bench`: the door to `emel.bench`, which brings its own options."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `emel.bench.command`."""
    import importlib

    importlib.import_module("emel.bench.command").configure(parser)


def run(arguments: argparse.Namespace) -> int:
    """Runs the chosen suite."""
    import importlib

    code: int = importlib.import_module("emel.bench.command").run(arguments)
    return code
