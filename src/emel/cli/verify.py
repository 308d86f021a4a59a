"""`emel verify`: computes a recorded request anew and says whether every bit of it is the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from emel.cli.arguments import add_model, add_session, chosen_model
from emel.cli.files import read_regular_file
from emel.cli.terminal import write_out

if TYPE_CHECKING:
    import argparse

MOST_BYTES = 64 << 20
"""Of a transcript; one of a million steps has about half of it."""
EPILOG = """\
A transcript comes with a server's answer to a request that has "transcript": true; the whole answer may be given too.
Exit codes: 0 every step is equal, 1 a step differs.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.epilog = EPILOG
    parser.add_argument("transcript", metavar="TRANSCRIPT", help="a JSON file")
    add_model(parser)
    add_session(parser)
    parser.set_defaults(quiet=True)


def run(arguments: argparse.Namespace) -> int:
    """Says equal, or the first step that differs."""
    from emel.cli.models import open_model
    from emel.engine.transcript import Transcript, replay
    from emel.errors import RequestError

    try:
        given = json.loads(read_regular_file(arguments.transcript, MOST_BYTES).decode())
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{arguments.transcript} is no JSON: {error}") from None
    transcript = Transcript.from_json(given)
    with open_model(chosen_model(arguments), arguments) as model:
        difference = replay(model, transcript)
    n = len(transcript.steps)
    if difference is None:
        write_out(f"equal: {n} step{'' if n == 1 else 's'}, {transcript.fingerprint}\n")
        return 0
    wanted, got = difference.wanted, difference.got
    found = f"token {got.token}, logits {got.digest}" if got else "the end"
    recorded = f"token {wanted.token}, logits {wanted.digest}"
    write_out(f"step {difference.index + 1} of {n} differs: recorded {recorded}; here {found}\n")
    return 1
