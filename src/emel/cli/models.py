"""The model a command line names: found (and fetched when need be), and loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emel.cli.terminal import UsageError, say_note

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from emel import Model


def locate(model: str | None, *, offline: bool, quiet: bool = False) -> Path:
    """The file of a model (the default one for None), fetched when it has to be, with a word about it on stderr."""
    from emel.engine.models import DEFAULT_MODEL, FetchPolicy, resolve_model

    def notify(text: str) -> None:
        if not quiet:
            say_note(f"emel: {text}")

    policy = FetchPolicy(notify=notify, offline=True) if offline else FetchPolicy(notify=notify)
    return resolve_model(DEFAULT_MODEL if model is None else model, policy)


def load_keywords(arguments: argparse.Namespace, *, quiet: bool) -> dict[str, Any]:
    """The session options of the command line as keywords of `emel.load`, `memory` aside."""
    if arguments.isa is not None:
        _check_route(arguments.isa)
    draft = arguments.draft_model
    return {
        "n_ctx": arguments.ctx_size,
        "n_threads": arguments.threads,
        "isa": arguments.isa,
        "activations": arguments.activations,
        "overrides": dict(arguments.override_kv),
        "kv_type": arguments.kv_type,
        "speculation": arguments.speculation,
        "draft": None if draft is None else locate(draft, offline=arguments.offline, quiet=quiet),
        "lora": arguments.lora,
        "chat_template": arguments.chat_template,
    }


def open_model(model: str | None, arguments: argparse.Namespace, **options: Any) -> Model:
    """Finds the model and loads it with the session options of the command line, and `options` of `emel.load`."""
    import emel

    keywords = load_keywords(arguments, quiet=arguments.quiet) | options
    path = locate(model, offline=arguments.offline, quiet=arguments.quiet)
    return emel.load(path, memory=arguments.memory, **keywords)


def _check_route(name: str) -> None:
    from emel.kernel.features import choose_route

    try:
        choose_route(name)
    except ValueError as error:
        raise UsageError(f"argument --isa: {error}") from error
