"""`emel chat`: a conversation on the terminal, or one message per line from a pipe."""

from __future__ import annotations

import sys
from dataclasses import field
from typing import TYPE_CHECKING

from emel.cli.arguments import add_model, add_session
from emel.cli.sampling import add_sampling, sampling_options
from emel.cli.terminal import UsageError, say, say_error, say_note
from emel.cli.tracing import add_trace, traced
from emel.errors import RequestError
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    import argparse

    from emel import Model

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
    parser.add_argument("-sys", "--system", metavar="TEXT", help="a system message")
    volume = parser.add_mutually_exclusive_group()
    volume.add_argument("-v", "--verbose", action="store_true", help="figures after every answer")
    volume.add_argument("-q", "--quiet", action="store_true", help="nothing on stderr but errors")
    add_model(parser)
    add_sampling(parser)
    add_session(parser)
    add_trace(parser)


@dataclass(slots=True)
class Conversation:
    """The messages so far, as the model is given them."""

    system: str | None = None
    turns: list[dict[str, str]] = field(default_factory=list)

    def messages(self) -> list[dict[str, str]]:
        """The system message, when there is one, and all turns."""
        head = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*head, *self.turns]

    def drop_unanswered(self) -> None:
        """Takes back a last message of the user that got no answer: a template may refuse two in a row."""
        if self.turns and self.turns[-1]["role"] == "user":
            self.turns.pop()


def run(arguments: argparse.Namespace) -> int:
    """Reads, answers, repeats, until the input ends."""
    from emel.cli.arguments import chosen_model
    from emel.cli.models import open_model
    from emel.cli.prompt import as_text

    flagged = chosen_model(arguments)
    if flagged and arguments.words:
        raise UsageError(f"unexpected argument {arguments.words!r}: the model is given by a flag")
    conversation = Conversation(None if arguments.system is None else as_text(arguments.system))
    interactive = sys.stdin.isatty()
    with traced(arguments), open_model(arguments.words or flagged, arguments) as model:
        if interactive:
            _load_line_editor()
            if not arguments.quiet:
                say_note("/help lists the commands, Ctrl-D ends")
        while True:
            try:
                line = _next_line(interactive=interactive)
                if line is None or not _take_turn(model, conversation, line.strip(), arguments):
                    break
            except KeyboardInterrupt:  # between two places that expect it, as a second one in a row can be
                if not interactive:
                    raise
                conversation.drop_unanswered()
    return 0


def _take_turn(model: Model, conversation: Conversation, text: str, arguments: argparse.Namespace) -> bool:
    """Obeys a command or answers a message; False when the conversation is over."""
    if text.startswith("/") and not text.startswith("//"):
        return _obey(text, conversation)
    if text:
        _answer(model, conversation, text.removeprefix("/") if text.startswith("//") else text, arguments)
    return True


def _answer(model: Model, conversation: Conversation, text: str, arguments: argparse.Namespace) -> None:
    """One turn; what was written before an interrupted answer stays part of the conversation."""
    from emel.cli.answer import say_figures, write_answer
    from emel.text.chat import ChatTemplateError

    conversation.turns.append({"role": "user", "content": text})
    received: list[str] = []
    try:
        chunks = model.chat(conversation.messages(), stream=True, **sampling_options(arguments))
        completion = write_answer(chunks, received)
    except KeyboardInterrupt:
        if not sys.stdin.isatty():
            raise
        completion = None
        say_note("(stopped)")
    except (RequestError, ChatTemplateError) as error:
        conversation.drop_unanswered()
        say_error(str(error), "/reset forgets the conversation so far")
        return
    conversation.turns.append({"role": "assistant", "content": "".join(received)})
    if completion and arguments.verbose:
        say_figures(completion)


def _obey(text: str, conversation: Conversation) -> bool:
    """Carries out a /command; False when it ends the conversation."""
    name, _, rest = text.partition(" ")
    if name in {"/exit", "/quit", "/bye"}:
        return False
    if name == "/help":
        say(HELP)
    elif name == "/reset":
        conversation.turns.clear()
        say_note("(forgotten)")
    elif name == "/system":
        conversation.system = rest.strip() or None
        conversation.turns.clear()
        say_note("(system message set)" if conversation.system else "(system message removed)")
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
