"""`emel run`: one prompt, one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.cli.arguments import add_model, add_session, add_template_variables, template_variables
from emel.cli.constraints import add_constraints, constraint_options
from emel.cli.sampling import add_sampling, sampling_options
from emel.cli.terminal import UsageError
from emel.cli.tracing import add_trace, traced

if TYPE_CHECKING:
    import argparse

EPILOG = """\
One word alone is taken for the model if it can be one: a known name, a file, or a word without spaces.
The prompt may also come from -f or, when none is given, from standard input.
The answer goes to stdout; everything else, and the closing figures, to stderr.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.usage = "emel run [options] [MODEL] [PROMPT]"
    parser.epilog = EPILOG
    parser.add_argument("words", nargs="*", metavar="[MODEL] [PROMPT]", help="what to run, and what to say to it")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("-p", "--prompt", metavar="TEXT", help="the prompt")
    source.add_argument("-f", "--file", metavar="FILE", help="the prompt is in this file (-: standard input)")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("-sys", "--system", "--system-prompt", metavar="TEXT", help="a system message before the prompt")
    mode.add_argument("--raw", action="store_true", help="continue the prompt as it is, without the chat template")
    parser.add_argument("-q", "--quiet", action="store_true", help="nothing on stderr but errors")
    add_model(parser)
    add_sampling(parser)
    add_constraints(parser)
    add_session(parser)
    add_template_variables(parser)
    add_trace(parser)


def run(arguments: argparse.Namespace) -> int:
    """Streams the answer, then says the figures."""
    from emel.cli.answer import say_figures, write_answer
    from emel.cli.models import open_model
    from emel.cli.prompt import as_text, read_prompt, split_words

    if arguments.raw and arguments.chat_template_kwargs:
        raise UsageError("--raw and --chat-template-kwargs exclude each other: a raw prompt has no template")
    model_name, word = split_words(arguments)
    prompt = read_prompt(word, arguments)
    sampling = {**sampling_options(arguments), **constraint_options(arguments)}
    with traced(arguments), open_model(model_name, arguments) as model:
        if arguments.raw:
            chunks = model.stream(prompt, **sampling)
        else:
            messages = [{"role": "user", "content": prompt}]
            if arguments.system is not None:
                messages.insert(0, {"role": "system", "content": as_text(arguments.system)})
            chunks = model.chat(messages, stream=True, **template_variables(arguments), **sampling)
        completion = write_answer(chunks)
    if completion and not arguments.quiet:
        say_figures(completion)
    return 0
