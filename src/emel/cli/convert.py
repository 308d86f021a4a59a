"""`emel convert`: a model of a Hugging Face directory as a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from emel.cli.terminal import UsageError, say
from emel.errors import EmelError

if TYPE_CHECKING:
    import argparse

    from emel.convert.quantizing import Progress

EPILOG = """\
DIR has config.json, .safetensors files, and tokenizer.json or tokenizer.model. docs/guides/converting.md lists the
classes of models. Quantise further with emel quantize.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.epilog = EPILOG
    parser.add_argument("source", metavar="DIR", help="a model directory, as Hugging Face has them")
    parser.add_argument("target", metavar="OUT", help="the .gguf file to write")
    parser.add_argument(
        "--outtype", choices=("f32", "f16", "bf16", "q8_0"), default="f16", help="type of matrices (default: f16)"
    )
    parser.add_argument("--pre", metavar="NAME", help="the pre-tokenizer, where it is not recognised")
    parser.add_argument("-f", "--force", action="store_true", help="replace OUT if it exists")
    parser.add_argument("-q", "--quiet", action="store_true", help="nothing on stderr but errors")


def run(arguments: argparse.Namespace) -> int:
    """Writes the file, with a line of progress and one of figures on stderr."""
    from emel.bench.progress import Progress as Line
    from emel.convert.converting import convert_directory

    if not Path(arguments.source).is_dir():
        raise EmelError(
            f"{arguments.source!r} is no directory",
            hint="hf download OWNER/REPO --local-dir DIR fetches the files of a model from Hugging Face",
        )
    if Path(arguments.target).exists() and not arguments.force:
        raise UsageError(f"{arguments.target} exists: -f replaces it")
    line = Line()

    def report(progress: Progress) -> None:
        if not arguments.quiet:
            line.show(f"{progress.n_done} of {progress.n_tensors} tensors: {progress.name}")

    summary = convert_directory(arguments.source, arguments.target, arguments.outtype, pre=arguments.pre, report=report)
    if not arguments.quiet:
        line.clear()
        say(f"{summary.n_values / 1e6:,.1f} million values, {summary.n_bytes_after / 1e6:,.1f} MB")
    return 0
