"""`python -m emel.bench.main SUITE ...`: the benchmark without the rest of the command line."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from emel.bench.command import configure, run
from emel.errors import EmelError

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one suite; 0 when done, 1 when it failed (one line on stderr says why), 2 when it was called wrongly."""
    parser = argparse.ArgumentParser(prog="emel bench", description="Measure speed.", allow_abbrev=False)
    configure(parser)
    try:
        return run(parser.parse_args(argv))
    except EmelError as error:
        sys.stderr.write(f"emel: error: {error}\n")
        if error.hint:
            sys.stderr.write(f"hint: {error.hint}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
