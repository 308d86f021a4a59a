"""`emel bench SUITE`: finds the suite; each brings its own options (emel.bench.suites lists them)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from emel.bench.suites import SUITES

if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the suites with their options."""
    suites = parser.add_subparsers(dest="suite", metavar="SUITE", title="suites", required=True)
    for name, (module, summary) in SUITES.items():
        suite = suites.add_parser(name, help=summary, description=f"{summary}.", allow_abbrev=False)
        suite.set_defaults(parser=suite)
        importlib.import_module(module).configure(suite)


def run(arguments: argparse.Namespace) -> int:
    """Runs the chosen suite and prints its results on stdout. EmelError for what a person can put right."""
    module, _ = SUITES[arguments.suite]
    code: int = importlib.import_module(module).run(arguments)
    return code
