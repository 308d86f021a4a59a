"""Chat templates: messages -> the prompt text a model was trained on.

The template comes from the model's file and is not trusted: it runs in template_sandbox.py. The messages come from
users and are trusted even less: chat_tokens.py makes ids of the prompt such that they never become control tokens.
"""

from __future__ import annotations

import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from emel.text.chat_messages import ChatTemplateError, check_messages, plain_copy
from emel.text.chat_templates import SIGNS, TEMPLATES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2 import Template

    from emel.gguf.metadata import Metadata
    from emel.text.tokenizer import Tokenizer

__all__ = ["ChatTemplate", "ChatTemplateError", "load_chat_template"]

_MAX_SOURCE = 256 * 1024
_MAX_REASON = 2_000
_SET_NAMES = frozenset({"bos_token", "eos_token", "raise_exception", "strftime_now"})
RESERVED_VARIABLES = _SET_NAMES | {"add_generation_prompt", "continue_final_message", "messages", "now", "tools"}
"""What no variable of a user may be named: EMEL sets these, or they are arguments of their own."""


class _RaisedByTemplateError(ChatTemplateError):
    """raise_exception(message) of a template."""


class ChatTemplate:
    """A template and the texts of the model's begin and end tokens. name says where it is from."""

    def __init__(self, source: str, bos: str = "", eos: str = "", *, name: str = "template") -> None:
        if len(source) > _MAX_SOURCE:
            raise ChatTemplateError(f"the chat template has {len(source)} characters: allowed are {_MAX_SOURCE}")
        self.source = source
        self.name = name
        self._bos = bos
        self._eos = eos

    def render(
        self,
        /,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        now: datetime.datetime | None = None,
        **kwargs: Any,
    ) -> str:
        """The prompt. kwargs are further variables of the template (`enable_thinking`, ...); now is its clock.

        Raises ChatTemplateError: for messages of a wrong form, with the template's own words where it refuses them,
        and when it fails or goes over its budget.
        """
        variables = self.variables(messages, tools, add_generation_prompt=add_generation_prompt, **kwargs)
        return self.render_checked(variables, now)

    def variables(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None, /, **kwargs: Any
    ) -> dict[str, Any]:
        """The user's variables of a rendering, checked and copied."""
        for name in kwargs:
            if name in RESERVED_VARIABLES - {"add_generation_prompt"} or name.startswith("_"):
                raise ChatTemplateError(f"the template variable {name!r:.60} is set by EMEL and cannot be given")
        copied = {name: plain_copy(name, value) for name, value in kwargs.items()}
        return {"messages": check_messages(messages), "tools": plain_copy("tools", tools), **copied}

    def render_checked(self, variables: dict[str, Any], now: datetime.datetime | None = None) -> str:
        """As render, of what variables() gave."""
        from emel.text.template_budget import Budget, spending  # noqa: PLC0415
        from emel.text.template_sandbox import check_date_format  # noqa: PLC0415

        def strftime_now(form: str) -> str:
            return (now or datetime.datetime.now()).strftime(check_date_format(form))

        template = self._template
        n_characters, n_values = _measure(variables)
        with spending(Budget(n_characters, n_values)):
            try:
                return "".join(
                    template.generate(
                        {  # one dict: as keywords, a variable named "self" would be refused by Python
                            **variables,
                            "bos_token": self._bos,
                            "eos_token": self._eos,
                            "raise_exception": _raise_exception,
                            "strftime_now": strftime_now,
                        }
                    )
                )
            except _RaisedByTemplateError:
                raise
            except RecursionError:
                raise ChatTemplateError("the chat template calls itself too deeply") from None
            except Exception as error:
                # Whatever a template runs into (a missing field, a sandboxed attribute, a spent budget) is its failure.
                reason = _one_line(str(error))
                raise ChatTemplateError(f"{_failure(variables, reason)}: {reason}") from error

    @cached_property
    def _template(self) -> Template:
        from jinja2 import TemplateSyntaxError  # noqa: PLC0415 - 60 ms that only chats need

        from emel.text.template_sandbox import TemplateEnvironment  # noqa: PLC0415

        try:
            return TemplateEnvironment().from_string(self.source)
        except TemplateSyntaxError as error:
            raise ChatTemplateError(
                f"the chat template is malformed in line {error.lineno}: {_one_line(error.message or '')}"
            ) from None
        except Exception as error:
            # Source that is nested too deeply for the parser or for Python's own compiler.
            raise ChatTemplateError(f"the chat template cannot be compiled: {type(error).__name__}: {error}") from None


def load_chat_template(metadata: Metadata, tokenizer: Tokenizer, chosen: str | None = None) -> ChatTemplate:
    """The file's template; without one, that whose markers the vocabulary has. chosen: a name of TEMPLATES, or Jinja.

    ChatTemplateError when there is none, and for a name that is unknown.
    """
    bos = "" if tokenizer.bos_id is None else tokenizer.token_bytes(tokenizer.bos_id).decode("utf-8", "replace")
    eos = "" if tokenizer.eos_id is None else tokenizer.token_bytes(tokenizer.eos_id).decode("utf-8", "replace")
    if chosen is not None:
        return _chosen_template(chosen, bos, eos)
    source = metadata.get_str("tokenizer.chat_template", None)
    if source is not None:
        return ChatTemplate(source, bos, eos, name="file")
    for name, markers in SIGNS:
        if all(tokenizer.vocabulary.find(each) is not None for each in markers):
            return ChatTemplate(TEMPLATES[name], bos, eos, name=name)
    raise ChatTemplateError(
        "the model has no chat template (tokenizer.chat_template), and its vocabulary has the markers of none that "
        f"EMEL knows: give one by name ({', '.join(TEMPLATES)}) or as Jinja, or use it with raw prompts"
    )


def is_jinja(chosen: str) -> bool:
    """Whether a template is given itself, and not by its name."""
    return "{{" in chosen or "{%" in chosen


def _chosen_template(chosen: str, bos: str, eos: str) -> ChatTemplate:
    if is_jinja(chosen):
        return ChatTemplate(chosen, bos, eos, name="given")
    if chosen not in TEMPLATES:
        raise ChatTemplateError(
            f"there is no chat template {chosen!r:.60}: allowed are {', '.join(TEMPLATES)}, or Jinja with {{{{ or {{%"
        )
    return ChatTemplate(TEMPLATES[chosen], bos, eos, name=chosen)


def _raise_exception(message: object = "") -> NoReturn:
    raise _RaisedByTemplateError(_one_line(str(message)))


def _failure(variables: dict[str, Any], reason: str) -> str:
    """What to call a failure: often a template takes the content of a call of tools for text."""
    for index, message in enumerate(variables["messages"]):
        if "None" in reason and message.get("content", "") is None:
            return f"messages[{index}] has no content, and the chat template failed, maybe for want of it"
    return "the chat template failed"


def _one_line(text: str) -> str:
    """A template's words, of which nothing may move the cursor of a terminal."""
    cut = " ".join(text[:_MAX_REASON].split())
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in cut)


def _measure(value: Any) -> tuple[int, int]:
    """(characters in all strings, number of strings)."""
    if isinstance(value, str):
        return len(value), 1
    values = [*value.keys(), *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    n_characters = n_values = 0
    for each in values:
        more_characters, more_values = _measure(each)
        n_characters += more_characters
        n_values += more_values
    return n_characters, n_values
