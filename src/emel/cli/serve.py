"""`emel serve`: the HTTP server."""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from emel.cli.arguments import add_session, byte_amount, number, whole_number
from emel.cli.keys import given_keys
from emel.cli.models import load_keywords, locate
from emel.cli.terminal import UsageError, say
from emel.text.errors import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from emel.engine.budget import Grant
    from emel.engine.model import Model
    from emel.engine.options import LoadOptions
    from emel.server.served import ServedModels
    from emel.server.settings import Settings

EPILOG = """\
examples:
  emel serve
  emel serve path/to/model.gguf small=hf:owner/repo:Q4_K_M --port 9000 --memory 4GiB
  curl http://127.0.0.1:8080/v1/chat/completions -d '{"messages": [{"role": "user", "content": "Hello"}]}'

--memory is one budget for all models: one that is asked for takes the place of those not in use.
The page is at http://127.0.0.1:8080/. SIGTERM lets running requests end; a second signal ends at once.
"""
_ALWAYS = ("--metrics", "--slots", "--props", "--jinja", "-cb", "--cont-batching", "--embedding", "--embeddings")
_ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/\s]+")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.usage = "emel serve [options] [[NAME=]MODEL ...]"
    parser.epilog = EPILOG
    parser.add_argument(
        "models", nargs="*", metavar="[NAME=]MODEL", help="models to serve, the first for requests that name none"
    )
    parser.add_argument("-m", "--model", action="append", default=[], metavar="[NAME=]MODEL", help="one of them")
    parser.add_argument(
        "-hf",
        "--hf-repo",
        action="append",
        type=_repository,
        dest="model",
        metavar="[NAME=]OWNER/REPO[:QUANT]",
        help="the same as -m hf:OWNER/REPO[:QUANT]",
    )
    parser.add_argument("-a", "--alias", metavar="NAME[,NAME]", help="further names of the first model")
    parser.add_argument("--offline", action="store_true", help="never use the network to fetch models")
    add_session(parser)
    parser.add_argument("-np", "--parallel", type=whole_number(1, 256), metavar="N", help="requests that run at a time")
    where = parser.add_argument_group("where")
    where.add_argument(
        "--host", type=_host, default="127.0.0.1", help="address, or a path that ends in .sock (default: %(default)s)"
    )
    where.add_argument("--port", type=whole_number(0, 65535), default=8080, help="port (default: %(default)s)")
    where.add_argument("--ssl-key-file", metavar="FILE", help="private key; with it the server speaks TLS")
    where.add_argument("--ssl-cert-file", metavar="FILE", help="certificate")
    who = parser.add_argument_group("who")
    who.add_argument("--api-key", metavar="KEY[,KEY]", help="keys that open the server (also EMEL_API_KEY)")
    who.add_argument("--api-key-file", metavar="FILE", help="keys, one a line; # begins a comment")
    who.add_argument("--cors-origins", metavar="ORIGIN[,ORIGIN]", help="origins whose pages may call (default: none)")
    limits = parser.add_argument_group("limits")
    limits.add_argument("--max-body", type=byte_amount, metavar="AMOUNT", help="largest body (default: 10MiB)")
    limits.add_argument("--max-waiting", type=whole_number(0), metavar="N", help="requests that wait (default: 64)")
    limits.add_argument("--timeout", type=number(0.001), metavar="S", help="seconds a request may take (default: none)")
    limits.add_argument("--drain", type=number(0), metavar="S", help="seconds for running requests at the end (30)")
    limits.add_argument("--idle-unload", type=number(0.1), metavar="S", help="unload a model nobody used for so long")
    parser.add_argument("-v", "--verbose", action="store_true", help="also debug messages")
    # What llama.cpp's server has to be told and this one always does: its command lines are taken.
    parser.add_argument(*_ALWAYS, action="store_true", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Serves until a signal."""
    import logging

    try:
        from emel.server.app import create_app
        from emel.server.listening_server import log_to_stderr, serve
    except ImportError as error:
        raise UsageError(f"emel serve needs the server's packages ({error.name}): pip install 'emel[server]'") from None
    settings = _settings(arguments)
    log_to_stderr(logging.DEBUG if arguments.verbose else logging.INFO)
    begin = time.monotonic()
    paths, aliases = _paths(arguments)
    _require_a_model(paths.values())
    models = _models(arguments, paths, aliases)
    names = ", ".join(each.name for each in models)

    def say_url(url: str) -> None:
        if settings.is_public and not settings.api_keys:
            say(f"warning: everybody who reaches {settings.host} can use this server: set --api-key")
        say(f"loading {names}, to be served on {url}")

    def say_ready(url: str) -> None:
        places = f"the page is {url}/, the API {url}/v1" if "://" in url else f"the page is /, the API /v1, at {url}"
        say(f"ready after {time.monotonic() - begin:.1f} s: {places}")

    return serve(create_app(models, settings), settings, say_url, say_ready)


def _settings(arguments: argparse.Namespace) -> Settings:
    from emel.server.settings import Settings

    if bool(arguments.ssl_key_file) != bool(arguments.ssl_cert_file):
        raise UsageError("--ssl-key-file and --ssl-cert-file belong together: give both")
    given = {
        "max_body_bytes": arguments.max_body,
        "max_waiting": arguments.max_waiting,
        "request_timeout": arguments.timeout,
        "drain_seconds": arguments.drain,
        "idle_unload_seconds": arguments.idle_unload,
    }
    return Settings(
        host=arguments.host,
        port=arguments.port,
        api_keys=given_keys(arguments.api_key, arguments.api_key_file),
        cors_origins=_origins(arguments.cors_origins),
        tls_key=arguments.ssl_key_file,
        tls_certificate=arguments.ssl_cert_file,
        **{name: value for name, value in given.items() if value is not None},
    )


def _repository(text: str) -> str:
    """An argparse type: a repository of Hugging Face, as `-m` takes it."""
    name, equals, repository = text.rpartition("=")
    return f"{name}{equals}hf:{repository.removeprefix('hf:')}"


def _host(text: str) -> str:
    """An argparse type: an address or a path, and no URL."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty: 127.0.0.1 is this machine alone, 0.0.0.0 all that reach it")
    if "://" in text:
        raise argparse.ArgumentTypeError(f"{shown(text)} is a URL: an address is wanted, such as 127.0.0.1")
    return text


def _origins(text: str | None) -> tuple[str, ...]:
    origins = tuple(_parts(text))
    for each in origins:
        if not _ORIGIN.fullmatch(each):
            raise UsageError(
                f"argument --cors-origins: {shown(each)} is no origin: http://HOST[:PORT] or https://HOST[:PORT] is "
                "wanted, without a / at its end, or * for all"
            )
    return origins


def _parts(text: str | None) -> list[str]:
    return [each.strip() for each in (text or "").split(",") if each.strip()]


def _require_a_model(paths: Iterable[Path]) -> None:
    """Looks at the files before anything listens: the first one's ModelLoadError or ModelReadError if none is GGUF."""
    from emel.engine.failures import load_failures
    from emel.errors import EmelError
    from emel.gguf import open_gguf

    first = None
    for path in paths:
        try:
            with load_failures(), open_gguf(path):
                return
        except EmelError as error:
            first = first or error
    if first is not None:
        raise first


def _models(arguments: argparse.Namespace, paths: dict[str, Path], aliases: dict[str, str]) -> ServedModels:
    """What loads each model, within one budget if there is one."""
    from functools import partial

    from emel.engine.amounts import parse_memory
    from emel.engine.needs import needed_bytes
    from emel.engine.options import DEFAULT_LANES, LoadOptions
    from emel.server.served import ServedModels
    from emel.server.shared_memory import SharedMemory

    options = LoadOptions(**load_keywords(arguments, quiet=False), n_lanes=arguments.parallel or DEFAULT_LANES)
    aliases |= _aliases(arguments, paths)
    memory = None
    if arguments.memory is not None:
        needs = {name: partial(needed_bytes, path, options=options) for name, path in paths.items()}
        memory = SharedMemory(parse_memory(arguments.memory), needs)
    return ServedModels({name: partial(_load, path, options) for name, path in paths.items()}, aliases, memory)


def _aliases(arguments: argparse.Namespace, paths: dict[str, Path]) -> dict[str, str]:
    """Another name -> the name of the first model."""
    aliases = dict.fromkeys(_parts(arguments.alias), next(iter(paths)))
    if taken := sorted(aliases.keys() & paths.keys()):
        raise UsageError(f"argument -a/--alias: {taken[0]!r} is the name of a model")
    return aliases


def _load(path: Path, options: LoadOptions, memory: Grant | None = None) -> Model:
    from dataclasses import replace

    from emel.engine.model import Model

    return Model(path, replace(options, memory=memory))


def _paths(arguments: argparse.Namespace) -> tuple[dict[str, Path], dict[str, str]]:
    """Name -> file, and further name -> name. Every model is found, and fetched if need be, before it is served."""
    paths: dict[str, Path] = {}
    further: dict[str, str] = {}
    for word in [*arguments.models, *arguments.model] or [None]:
        name, model = _split(word)
        path = locate(model, offline=arguments.offline)
        further |= {} if name else dict.fromkeys(_names_as_typed(model), path.stem)
        name = name or path.stem
        if name in paths:
            raise UsageError(f"two models are called {name!r}: name one of them, NAME=MODEL")
        paths[name] = path
    return paths, {each: name for each, name in further.items() if each not in paths}


def _names_as_typed(model: str | None) -> tuple[str, ...]:
    """What a model without a name of its own is called on a command line: who typed that may ask for it so."""
    from emel.engine.models import DEFAULT_MODEL, find_builtin

    word = DEFAULT_MODEL if model is None else model
    if word.startswith("hf:"):
        return (word.removeprefix("hf:"),)
    builtin = None if Path(word).exists() else find_builtin(word)
    return (builtin.name, *builtin.aliases) if builtin else ()


def _split(word: str | None) -> tuple[str, str | None]:
    """(name or "", model) of [NAME=]MODEL; a path that has an = and is there is no name."""
    if word is None or "=" not in word or Path(word).exists():
        return "", word
    name, _, model = word.partition("=")
    return name, model
