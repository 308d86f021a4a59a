"""`emel accuracy`: how far a model's logits are from those of a base."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING

from emel.cli.files import read_file
from emel.cli.scored_text import add_scored_text, open_scored, split_model_and_file
from emel.cli.terminal import UsageError, write_out

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from emel import Model
    from emel.accuracy.chunks import Chunks
    from emel.accuracy.divergence import Divergence

EPILOG = """\
The base is another model (such as the unquantised one) on the same text, or logits saved by --save-logits, or by any
program that writes safetensors (docs/guides/accuracy.md): then their tokens are used, and no FILE is given.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.usage = (
        "emel accuracy [options] [MODEL] FILE (--base MODEL | --save-logits OUT)\n"
        "       emel accuracy [options] [MODEL] --base-logits SAVED"
    )
    parser.epilog = EPILOG
    base = parser.add_mutually_exclusive_group(required=True)
    base.add_argument("--base", metavar="MODEL", help="compare with this model")
    base.add_argument("--base-logits", metavar="SAVED", help="compare with the logits in this file")
    base.add_argument("--save-logits", metavar="OUT", help="write the model's logits to this file")
    add_scored_text(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints the figures, or saves the logits."""
    if arguments.base_logits is not None:
        return _compare_with_saved(arguments)
    from emel.accuracy.chunks import chunks_of_text

    name, file = split_model_and_file(arguments)
    text = read_file(file)
    with ExitStack() as stack:
        model = stack.enter_context(open_scored(name, arguments))
        chunks = chunks_of_text(model, text, arguments.chunks)
        if arguments.save_logits is not None:
            _save(model, chunks, arguments.save_logits, quiet=arguments.quiet)
            return 0
        from emel.accuracy.divergence import scored_logits

        arguments.lora = []  # adapters are part of the model that is measured
        base = stack.enter_context(open_scored(arguments.base, arguments))
        _compare(arguments, model, chunks, lambda chunk: scored_logits(base, chunks.ids[chunk], chunks.first))
    return 0


def _compare_with_saved(arguments: argparse.Namespace) -> int:
    from emel.accuracy.chunks import Chunks
    from emel.accuracy.logits_file import SavedLogits
    from emel.cli.arguments import chosen_model

    words, model_name = list(arguments.words), chosen_model(arguments)
    if words and model_name is None:
        model_name = words.pop(0)
    if words or arguments.file is not None:
        raise UsageError(f"unexpected argument {(words or [arguments.file])[0]!r}: the text's tokens are in SAVED")
    if arguments.ctx_size is not None:
        raise UsageError("argument -c: the length of chunks is that of SAVED")
    saved = SavedLogits(arguments.base_logits)
    arguments.ctx_size = saved.chunks.n_ctx
    chunks = Chunks(saved.chunks.n_ctx, saved.chunks.ids[: arguments.chunks])
    with open_scored(model_name, arguments) as model:
        _compare(arguments, model, chunks, saved.rows)
    return 0


def _save(model: Model, chunks: Chunks, out: str, *, quiet: bool) -> None:
    from emel.accuracy.chunks import visit_scored
    from emel.accuracy.logits_file import LogitsWriter
    from emel.bench.progress import Progress

    progress = Progress()
    with LogitsWriter(out, chunks, model.n_vocab) as writer:
        for done, chunk in enumerate(chunks.ids, 1):
            visit_scored(model, chunk, chunks.first, lambda rows, _ids: writer.add(rows))
            if not quiet:
                progress.show(f"chunk {done} of {len(chunks.ids)}")
    if not quiet:
        progress.clear()


def _compare(
    arguments: argparse.Namespace, model: Model, chunks: Chunks, base_rows: Callable[[int], NDArray[np.floating]]
) -> None:
    from emel.accuracy.divergence import measure_divergence
    from emel.bench.progress import Progress

    progress, n_chunks = Progress(), len(chunks.ids)

    def report(done: int, so_far: Divergence) -> None:
        if not arguments.quiet:
            progress.show(f"chunk {done} of {n_chunks}: mean KL {so_far.mean_kl:.6f} so far")

    try:
        found = measure_divergence(model, chunks, base_rows, report)
    finally:
        if not arguments.quiet:
            progress.clear()
    if arguments.json:
        import json

        shape = {"n_chunks": n_chunks, "n_ctx": chunks.n_ctx, "fingerprint": model.fingerprint}
        write_out(json.dumps({**asdict(found), **shape}) + "\n")
    else:
        write_out(_as_table(found))


def _as_table(found: Divergence) -> str:
    base, ours = found.base_perplexity, found.perplexity
    rows = [
        ("tokens", f"{found.n_tokens}"),
        ("mean KL divergence", f"{found.mean_kl:.3e} +/- {found.kl_error:.1e}"),
        ("largest", f"{found.largest_kl:.3e}"),
        ("same likeliest token", f"{found.top1_agreement:.3%}"),
        ("RMS error of logits", f"{found.rms_error:.3e} ({found.relative_rms_error:.3%} of the base's RMS)"),
        ("perplexity", f"{ours.value:.4f} +/- {ours.error:.5f}"),
        ("perplexity of the base", f"{base.value:.4f} +/- {base.error:.5f}"),
    ]
    return "".join(f"{name:<24}{value}\n" for name, value in rows)
