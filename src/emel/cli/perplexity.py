"""`emel perplexity`: how well a model predicts a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.cli.files import read_file
from emel.cli.scored_text import add_scored_text, open_scored, split_model_and_file
from emel.cli.terminal import write_out

if TYPE_CHECKING:
    import argparse

    from emel.accuracy.perplexity import Perplexity

EPILOG = """\
The text is cut into chunks of -c tokens (512); the second half of each is scored, as llama-perplexity does it, so that
figures compare. A line break at the end of the file is not part of the text.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.usage = "emel perplexity [options] [MODEL] FILE"
    parser.epilog = EPILOG
    add_scored_text(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints the perplexity with its standard error."""
    import json

    from emel.accuracy.chunks import chunks_of_text
    from emel.accuracy.perplexity import measure_perplexity
    from emel.bench.progress import Progress

    name, file = split_model_and_file(arguments)
    text = read_file(file)
    with open_scored(name, arguments) as model:
        chunks = chunks_of_text(model, text, arguments.chunks)
        progress, n_chunks = Progress(), len(chunks.ids)

        def report(done: int, so_far: Perplexity) -> None:
            if not arguments.quiet:
                progress.show(f"chunk {done} of {n_chunks}: perplexity {so_far.value:.4f} so far")

        try:
            found = measure_perplexity(model, chunks, report)
        finally:
            if not arguments.quiet:
                progress.clear()
        fingerprint = model.fingerprint
    shape = {"n_scored": found.n_tokens, "n_chunks": n_chunks, "n_ctx": chunks.n_ctx}
    if arguments.json:
        figures = {"perplexity": found.value, "error": found.error, **shape, "fingerprint": fingerprint}
        write_out(json.dumps(figures) + "\n")
    else:
        write_out(
            f"perplexity {found.value:.4f} +/- {found.error:.5f} "
            f"({n_chunks} chunk{'s' * (n_chunks > 1)} of {chunks.n_ctx} tokens, {found.n_tokens} scored)\n"
        )
    return 0
