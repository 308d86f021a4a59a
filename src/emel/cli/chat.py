"""`emel chat`: a conversation on the terminal, or one message per line from a pipe."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from emel.cli.arguments import add_model, add_session, add_template_variables, template_variables
from emel.cli.constraints import add_constraints, constraint_options
from emel.cli.sampling import add_sampling, sampling_options
from emel.cli.terminal import UsageError, say, say_error, say_note
from emel.cli.tracing import add_trace, traced
from emel.errors import RequestError

if TYPE_CHECKING:
    import argparse

    from emel.engine.conversation import Conversation

HELP = """\
/system TEXT  set the system message (alone: remove it) and start again
/reset        forget the conversation
/help         this list
/exit         end (also Ctrl-D)
Ctrl-C stops an answer. A line that ends in \\ goes on in the next; // sends a line that starts with /."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.usage = "emel chat [options] [MODEL]"
    parser.epilog = f"while talking:\n{HELP}"
    parser.add_argument("words", nargs="?", metavar="MODEL", help="who to talk to")
    parser.add_argument("-sys", "--system", "--system-prompt", metavar="TEXT", help="a system message")
    volume = parser.add_mutually_exclusive_group()
    volume.add_argument("-v", "--verbose", action="store_true", help="figures after every answer")
    volume.add_argument("-q", "--quiet", action="store_true", help="nothing on stderr but errors")
    add_model(parser)
    add_sampling(parser)
    add_constraints(parser)
    add_session(parser)
    add_template_variables(parser)
    add_trace(parser)


def run(arguments: argparse.Namespace) -> int:
    """Reads, answers, repeats, until the input ends."""
    from emel.cli.arguments import chosen_model
    from emel.cli.models import open_model
    from emel.cli.prompt import as_text, is_text

    flagged = chosen_model(arguments)
    if flagged and arguments.words:
        raise UsageError(f"unexpected argument {arguments.words!r}: the model is given by a flag")
    if arguments.words and is_text(arguments.words):
        raise UsageError(f"{arguments.words!r} is no model: emel run answers one prompt, emel chat reads them")
    system = None if arguments.system is None else as_text(arguments.system)
    options = {**sampling_options(arguments), **constraint_options(arguments), **template_variables(arguments)}
    interactive = sys.stdin.isatty()
    with traced(arguments), open_model(arguments.words or flagged, arguments) as model:
        conversation = model.session(system, **options)
        if interactive:
            _load_line_editor()
            if not arguments.quiet:
                say_note("/help lists the commands, Ctrl-D ends")
        while True:
            try:
                line = _next_line(interactive=interactive)
                if line is None or not _take_turn(conversation, line.strip(), verbose=arguments.verbose):
                    break
            except KeyboardInterrupt:  # between two places that expect it, as a second one in a row can be
                if not interactive:
                    raise
    return 0


def _take_turn(conversation: Conversation, text: str, *, verbose: bool) -> bool:
    """Obeys a command or answers a message; False when the conversation is over."""
    if text.startswith("/") and not text.startswith("//"):
        return _obey(text, conversation)
    if text:
        _answer(conversation, text.removeprefix("/") if text.startswith("//") else text, verbose=verbose)
    return True


def _answer(conversation: Conversation, text: str, *, verbose: bool) -> None:
    """One turn; what was written before an interrupted answer stays part of the conversation."""
    from emel.cli.answer import say_figures, write_answer

    try:
        completion = write_answer(conversation.stream(text))
    except KeyboardInterrupt:
        if not sys.stdin.isatty():
            raise
        say_note("(stopped)")
    except RequestError as error:
        say_error(str(error), "/reset forgets the conversation so far")
    else:
        if completion and verbose:
            say_figures(completion)


def _obey(text: str, conversation: Conversation) -> bool:
    """Carries out a /command; False when it ends the conversation."""
    name, _, rest = text.partition(" ")
    if name in {"/exit", "/quit", "/bye"}:
        return False
    if name == "/help":
        say(HELP)
    elif name == "/reset":
        conversation.messages = [each for each in conversation.messages if each["role"] == "system"]
        say_note("(forgotten)")
    elif name == "/system":
        system = rest.strip()
        conversation.messages = [{"role": "system", "content": system}] if system else []
        say_note("(system message set)" if system else "(system message removed)")
    else:
        say_error(f"there is no command {name}", "/help lists them; // sends a line that starts with /")
    return True


def _next_line(*, interactive: bool) -> str | None:
    """The next message, continued lines joined; None at the end of the input."""
    parts: list[str] = []
    while True:
        try:
            line = _read_line("... " if parts else "> ", interactive=interactive)
        except KeyboardInterrupt:
            if not interactive:
                raise
            say("\n(Ctrl-D or /exit ends)")
            parts.clear()
            continue
        if line is None:
            if interactive:
                say("")
            return "\n".join(parts) if parts else None
        if not line.endswith("\\"):
            return "\n".join([*parts, line])
        parts.append(line[:-1])


def _read_line(prompt: str, *, interactive: bool) -> str | None:
    if interactive and sys.stdout.isatty():
        try:
            return input(prompt)  # goes through the line editor
        except EOFError:
            return None
    if interactive:  # input() would put the prompt among the data
        sys.stderr.write(prompt)
        sys.stderr.flush()
    line = sys.stdin.readline()
    return line.removesuffix("\n") if line else None


def _load_line_editor() -> None:
    """Importing readline gives input() editing keys and a history of this session's lines; some Pythons lack it."""
    try:
        import readline  # noqa: F401
    except ImportError:
        return
