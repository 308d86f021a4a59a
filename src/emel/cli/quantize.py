"""`emel quantize`: a smaller copy of a model file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from emel.cli.arguments import whole_number
from emel.cli.models import locate
from emel.cli.terminal import UsageError, say

if TYPE_CHECKING:
    import argparse

    from emel.convert.quantizing import Progress

EPILOG = """\
types: F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K; Q4_K and Q5_K are the _M of these.
Each tensor gets what llama.cpp gives it: more bits for those that need them; norms stay as they are. IN should be F32,
F16 or BF16. OUT appears when it is whole.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.epilog = EPILOG
    parser.add_argument("source", metavar="IN", help="a .gguf file, or another name of a model")
    parser.add_argument("target", metavar="OUT", help="the file to write")
    parser.add_argument("type", metavar="TYPE", help="what to quantise to, see below")
    parser.add_argument("--allow-requantize", action="store_true", help="take quantised tensors too, at a further loss")
    parser.add_argument("-f", "--force", action="store_true", help="replace OUT if it exists")
    parser.add_argument("-t", "--threads", type=whole_number(1), metavar="N", help="threads (default: see emel doctor)")
    parser.add_argument("-q", "--quiet", action="store_true", help="nothing on stderr but errors")


def run(arguments: argparse.Namespace) -> int:
    """Writes the file, with a line of progress and one of figures on stderr."""
    from emel.bench.progress import Progress as Line
    from emel.convert.errors import ConvertError
    from emel.convert.quantizing import checked_mix, quantize_file

    try:
        mix = checked_mix(arguments.type)
    except ConvertError as error:
        raise UsageError(str(error)) from None
    source = locate(arguments.source, offline=False, quiet=arguments.quiet)
    if Path(arguments.target).exists() and not arguments.force:
        raise UsageError(f"{arguments.target} exists: -f replaces it")
    line = Line()

    def report(progress: Progress) -> None:
        if not arguments.quiet:
            line.show(
                f"{progress.n_done} of {progress.n_tensors} tensors: {progress.name} "
                f"{progress.before.name} to {progress.after.name}"
            )

    summary = quantize_file(
        source,
        arguments.target,
        mix,
        allow_requantize=arguments.allow_requantize,
        n_threads=arguments.threads,
        report=report,
    )
    if not arguments.quiet:
        line.clear()
        before, after = summary.n_bytes_before, summary.n_bytes_after
        say(f"{before / 1e6:,.1f} MB to {after / 1e6:,.1f} MB, {8 * after / summary.n_values:.2f} bits a value")
    return 0
