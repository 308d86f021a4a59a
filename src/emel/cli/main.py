"""The `emel` command line: picks the command, runs it, and turns what went wrong into a line and an exit code.

    0 done   1 it failed (one line says why)   2 it was called wrongly   130 Ctrl-C   141 nobody reads stdout any more

Nothing here imports more than argparse; a command's own module is imported when it is the one asked for.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import os
import re
import sys
from typing import TYPE_CHECKING, NoReturn

from emel.cli import terminal
from emel.cli.entry import EXIT_INTERRUPTED
from emel.cli.terminal import UsageError
from emel.errors import EmelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

EXIT_FAILED, EXIT_USAGE, EXIT_BROKEN_PIPE = 1, 2, 141

# Each is a module of this package with `configure(parser)` and `run(arguments) -> exit code`.
COMMANDS = {
    "run": "write an answer to one prompt",
    "chat": "talk with a model",
    "serve": "serve models over HTTP, for OpenAI's clients and for browsers",
    "perplexity": "how well a model predicts a text",
    "accuracy": "how far logits are from another model's or a reference's",
    "convert": "write a model of a Hugging Face directory as a GGUF file",
    "quantize": "write a smaller copy of a model file",
    "verify": "compute a recorded request anew and compare every bit",
    "pull": "fetch a model once, and say where it is",
    "inspect": "what is in a model file, and the memory it takes",
    "tokenize": "text to token ids",
    "doctor": "what this machine has, what EMEL uses of it, and what to expect",
    "machines": "the state machines inside: list, tables, diagrams",
    "bench": "measure speed",
}

EPILOG = """\
examples:
  emel run "What is the capital of France?" --temp 0
  emel chat
  emel run -m path/to/model.gguf -p "Once upon a time" --raw -n 64
  cat notes.txt | emel run -sys "Summarise in one sentence."

A model is a .gguf file, a built-in name, or hf:owner/repo[:quant]. Without one: smollm2-135m-instruct.
EMEL_DEBUG=1 shows the traceback of an error.
"""


class Parser(argparse.ArgumentParser):
    """argparse, saying what is wrong in one line that names the flag."""

    def error(self, message: str) -> NoReturn:
        """Reports a usage error and ends with exit code 2."""
        self._refuse(message + _guess_choice(message), f"see {self.prog} --help")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does, once no word is a flag of another engine: it would take -fa for the file a."""
        from emel.cli.other_engines import flag_hint

        words = sys.argv[1:] if args is None else args
        if self._subparsers is None and (
            foreign := flag_hint(words, self._option_string_actions, serves=self.prog == "emel serve")
        ):
            self._refuse(f"{self.prog} has no {foreign[0]}", foreign[1])
        return super().parse_known_args(args, namespace)

    def _refuse(self, message: str, hint: str) -> NoReturn:
        terminal.say_error(message, hint)
        raise SystemExit(EXIT_USAGE)

    def _get_option_tuples(self, option_string: str) -> Any:
        """argparse takes -n for -np where there is no -n, whatever `allow_abbrev` says."""
        return [each for each in super()._get_option_tuples(option_string) if option_string.startswith(each[1])]


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """argparse forgets that commands are indented once more: the longest would stand on a line of its own."""

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        self._action_max_length = max(self._action_max_length, max(map(len, COMMANDS)) + 4)


class _ShowVersion(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            found = version("emel")
        except PackageNotFoundError:
            found = "(source tree, not installed)"
        terminal.write_out(f"emel {found}\n")
        parser.exit()


def build_parser(command: str | None) -> Parser:
    """The parser with all commands named, and the options of `command` alone."""
    parser = Parser(
        prog="emel",
        description="Runs GGUF language models on CPUs.",
        epilog=EPILOG,
        formatter_class=_HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="show the version and exit")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", required=True)
    for name, summary in COMMANDS.items():
        chosen = subparsers.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        chosen.set_defaults(parser=chosen)
        if name == command:
            importlib.import_module(f"emel.cli.{name}").configure(chosen)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code; `argv` is without the program's name."""
    terminal.prepare_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    with _rare_collections():
        return _run_guarded(words)


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    """What a command makes stays until it ends: a collector that looks after every 700 objects looks in vain.

    That was a tenth of the processor time of a short run.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(50_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def _run_guarded(words: list[str]) -> int:
    try:
        code = _run_command(words)
        sys.stdout.flush()
    except BrokenPipeError:
        terminal.abandon_stdout()
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        terminal.say("emel: interrupted")
        return EXIT_INTERRUPTED
    except UsageError as error:
        terminal.say_error(str(error), f"see emel {words[0]} --help")
        return EXIT_USAGE
    except Exception as error:
        if os.environ.get("EMEL_DEBUG") or not _is_expected(error):
            raise
        _report(error)
        return EXIT_FAILED
    return code


def _run_command(words: list[str]) -> int:
    if not words:
        build_parser(None).print_help(sys.stderr)
        return EXIT_USAGE
    command = next((word for word in words if not word.startswith("-")), None)
    if command == words[0] and command not in COMMANDS:
        _refuse_command(command)
        return EXIT_USAGE
    try:
        arguments, unknown = build_parser(command).parse_known_args(words)
        if unknown:
            _refuse_unknown(arguments.parser, unknown)
    except SystemExit as end:  # argparse's way to return from --help and from usage errors
        return end.code if isinstance(end.code, int) else EXIT_USAGE
    code: int = importlib.import_module(f"emel.cli.{arguments.command}").run(arguments)
    return code


def _refuse_command(command: str) -> None:
    from emel.cli.other_engines import command_hint

    if hint := command_hint(command):
        terminal.say_error(f"there is no command {command!r}", hint)
    else:
        terminal.say_error(f"there is no command {command!r}{_guess(command, COMMANDS)}", "see emel --help")


def _refuse_unknown(parser: argparse.ArgumentParser, words: Sequence[str]) -> NoReturn:
    """argparse would report these as errors of `emel`, not of the command (or suite) whose options they are not."""
    options = re.findall(r"(?<![\w-])--?[a-z][\w-]*", parser.format_help())
    guess = _guess(words[0].partition("=")[0], options)
    parser.error(f"unrecognized arguments: {' '.join(words)}{guess}")


def _guess(word: str, known: Iterable[str]) -> str:
    import difflib

    by_letters = {each.lstrip("-"): each for each in known}
    close = difflib.get_close_matches(word.lstrip("-"), list(by_letters), n=1)
    return f" (did you mean {by_letters[close[0]]}?)" if close else ""


def _guess_choice(message: str) -> str:
    """For argparse's words about a value that is none of an option's, or about a suite there is not."""
    found = re.search(r"invalid choice: (\S+) \(choose from (.*)\)\Z", message)
    return _guess(found[1].strip("'\""), re.findall(r"[\w.-]+", found[2])) if found else ""


def _is_expected(error: Exception) -> bool:
    """Whether the error is about the user's files, flags or machine; anything else is a defect and shows whole."""
    if isinstance(error, EmelError | OSError | MemoryError | ImportError):
        return True
    # Packages below the engine stand alone: their errors (GgufError ...) are ValueErrors and the like of their own.
    return type(error).__module__.partition(".")[0] == "emel"


def _report(error: Exception) -> None:
    if isinstance(error, MemoryError):
        terminal.say_error("not enough memory", "emel doctor shows what is available; -c makes the context smaller")
    elif isinstance(error, OSError) and error.strerror:
        about = f"{error.filename!r}: " if error.filename else ""
        terminal.say_error(f"{about}{error.strerror}")
    else:
        terminal.say_error(str(error) or type(error).__name__, getattr(error, "hint", None))
