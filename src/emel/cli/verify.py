"""`emel verify`: computes a recorded request anew and says whether every bit of it is the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emel.cli.arguments import add_model, add_session, chosen_model
from emel.cli.files import read_regular_file
from emel.cli.terminal import say_note, write_out

if TYPE_CHECKING:
    import argparse

    from emel.engine.transcript import Difference, Transcript

MOST_BYTES = 64 << 20
"""Of a transcript; one of a million steps has about half of it."""
EPILOG = """\
A transcript comes with a server's answer to a request that has "transcript": true: it is what stands under that name,
with several choices in each of them. The whole answer may be given too, and the events of a stream as they came.
Activations, the type of the KV cache and the context are the transcript's unless they are given.
Exit codes: 0 every step is equal, 1 a step differs.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.epilog = EPILOG
    parser.add_argument("transcript", metavar="TRANSCRIPT", help="a file of JSON or of a stream's events")
    add_model(parser)
    add_session(parser)
    parser.set_defaults(quiet=True)


def run(arguments: argparse.Namespace) -> int:
    """Says equal, or the first step that differs, of each transcript."""
    from emel.cli.models import open_model
    from emel.cli.transcripts import transcripts_in
    from emel.engine.models import DEFAULT_MODEL
    from emel.engine.transcript import replay
    from emel.errors import RequestError

    try:
        text = read_regular_file(arguments.transcript, MOST_BYTES).decode()
    except ValueError as error:
        raise RequestError(f"{arguments.transcript} is no text: {error}") from None
    found = transcripts_in(text, arguments.transcript)
    model_name = chosen_model(arguments)
    if model_name is None:
        say_note(f"emel: without -m the model is {DEFAULT_MODEL}, the default")
    options = _options(arguments, found[0][1])
    try:
        opened = open_model(model_name, arguments, **options)
    except RequestError as error:
        if not options:
            raise
        told = ", ".join(f"{name} {value}" for name, value in options.items())
        message = f"the model cannot be loaded as the transcript says ({told}): {error}"
        raise RequestError(message, hint="give -m MODEL as the server had it") from error
    with opened as model:
        differences = [replay(model, transcript) for _, transcript in found]
    for (index, transcript), difference in zip(found, differences, strict=True):
        write_out(f"choice {index}: " if len(found) > 1 else "")
        write_out(_verdict(transcript, difference))
    return 1 if any(differences) else 0


def _options(arguments: argparse.Namespace, transcript: Transcript) -> dict[str, Any]:
    """What the transcript says the model was loaded with, as far as the command line does not."""
    recorded = {
        "activations": (arguments.activations, transcript.activations),
        "kv_type": (arguments.kv_type, transcript.kv_type),
        "n_ctx": (arguments.ctx_size, transcript.n_ctx),
    }
    return {name: told for name, (given, told) in recorded.items() if given is None and told is not None}


def _verdict(transcript: Transcript, difference: Difference | None) -> str:
    n = len(transcript.steps)
    if difference is None:
        return f"equal: {n} step{'' if n == 1 else 's'}, {transcript.fingerprint}\n"
    wanted, got = difference.wanted, difference.got
    found = f"token {got.token}, logits {got.digest}" if got else "the end"
    recorded = f"token {wanted.token}, logits {wanted.digest}"
    return f"step {difference.index + 1} of {n} differs: recorded {recorded}; here {found}\n"
