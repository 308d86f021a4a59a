"""GGUF files of Hugging Face repositories, through huggingface_hub (the extra `emel[hub]`) and its own cache.

    owner/repo                 the Q4_K_M file, else the first .gguf by name
    owner/repo:q8_0            the file of that quantisation, in any letter case
    owner/repo:file.gguf       that file
    owner/repo...@revision     of a branch, tag or commit

What is in the cache is used without any network; only a refresh (`emel pull`) asks the hub again. HF_HOME, HF_ENDPOINT
and HF_TOKEN mean what they mean to huggingface_hub.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emel.errors import ModelFetchError, ModelNotFoundError
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from emel.engine.models import FetchPolicy

DEFAULT_QUANT = "Q4_K_M"

# Owner and repository as the hub allows them, then an optional :quant or :file, then an optional @revision.
_REFERENCE = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?::(?P<choice>[^@:]+))?(?:@(?P<revision>[^@:\s]+))?", re.ASCII)
_PART = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<n_parts>\d{5})\.gguf")


@dataclass(frozen=True, slots=True)
class RepositoryReference:
    """A parsed `owner/repo[:quant or file][@revision]`."""

    repo: str
    choice: str | None
    revision: str | None


def parse_reference(text: str) -> RepositoryReference:
    """Reads what follows `hf:`; raises ModelNotFoundError when it has another form."""
    match = _REFERENCE.fullmatch(text)
    if match is None:
        raise ModelNotFoundError(
            f"'hf:{text}' does not name a repository", hint="the form is hf:owner/repo[:quant or file.gguf][@revision]"
        )
    return RepositoryReference(match["repo"], match["choice"], match["revision"])


def choose_files(names: Iterable[str], reference: RepositoryReference) -> list[str]:
    """The .gguf file of a repository that the reference means, or all parts of the split model it means, in order.

    Raises ModelNotFoundError, with what there is, when no file fits, and when a part is missing.
    """
    files = sorted(name for name in names if name.endswith(".gguf") and "mmproj" not in name.lower())
    choice = reference.choice
    if not files:
        raise ModelNotFoundError(f"the repository {reference.repo} has no .gguf file")
    if choice and choice.endswith(".gguf"):
        fitting = [name for name in files if name == choice]
    else:
        fitting = [name for name in files if _is_quant(name, choice or DEFAULT_QUANT)]
        if not fitting and choice is None:
            fitting = files
    if not fitting:
        listed = ", ".join(files[:12]) + (", ..." if len(files) > 12 else "")
        raise ModelNotFoundError(f"{reference.repo} has no .gguf file for {choice!r}", hint=f"it has: {listed}")
    whole = [name for name in fitting if not _PART.fullmatch(name)]
    return whole[:1] or _all_parts(fitting[0], files, reference)


def _all_parts(name: str, files: Sequence[str], reference: RepositoryReference) -> list[str]:
    match = _PART.fullmatch(name)
    assert match is not None
    n = match["n_parts"]
    parts = [f"{match['stem']}-{part:05}-of-{n}.gguf" for part in range(1, int(n) + 1)]
    if missing := [part for part in parts if part not in files]:
        raise ModelNotFoundError(f"{reference.repo} has {name}, but not its part {missing[0]}")
    return parts


def fetch_from_repository(text: str, policy: FetchPolicy) -> Path:
    """The file that `owner/repo[:quant][@revision]` means, in huggingface_hub's cache; fetched when it is not there.

    Of a split model it is the first part; the others lie beside it.

    Raises ModelNotFoundError for a repository, revision or file that does not exist, ModelFetchError for everything
    that keeps one that does from arriving.
    """
    reference = parse_reference(text)
    try:
        import huggingface_hub as hub
    except ImportError:
        raise ModelFetchError(
            f"'hf:{text}' needs the package huggingface_hub, which is not installed", hint="pip install 'emel[hub]'"
        ) from None
    _check_name(text, reference)
    if not policy.refresh or policy.offline:
        kept = _find_kept(hub, reference, settle_default=policy.offline)
        if kept:
            return kept
    if policy.offline:
        raise ModelFetchError(
            f"'hf:{text}' is not in the cache and fetching is switched off (--offline or EMEL_OFFLINE)",
            hint=f"fetch it once while online: emel pull hf:{text}",
        )
    policy.notify(f"looking up {reference.repo} on the hub")
    return _download(hub, reference)


def _check_name(text: str, reference: RepositoryReference) -> None:
    """The hub's own rules for names, which are stricter than the form."""
    from huggingface_hub import utils
    from huggingface_hub.errors import HFValidationError

    rules: Any = utils
    try:
        rules.validate_repo_id(reference.repo)
    except HFValidationError as error:
        reason = (str(error).strip() or "the hub refuses the name").splitlines()[0].rstrip(".")
        raise ModelNotFoundError(
            f"'hf:{text}' does not name a repository: {reason}",
            hint="the form is hf:owner/repo[:quant or file.gguf][@revision]",
        ) from error


def _find_kept(hub: Any, reference: RepositoryReference, *, settle_default: bool) -> Path | None:
    """The file in the local cache that the reference means.

    Without a choice that is the default quantisation; another file that happens to lie here is not taken for it, unless
    `settle_default` says that there is no asking the hub.
    """
    try:
        snapshot = Path(hub.snapshot_download(reference.repo, revision=reference.revision, local_files_only=True))
    except (OSError, ValueError):  # LocalEntryNotFoundError is both; there is nothing of this revision
        return None
    names = [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*.gguf") if path.is_file()]
    if not settle_default and reference.choice is None:
        names = [name for name in names if _is_quant(name, DEFAULT_QUANT)]
    try:
        return snapshot / choose_files(names, reference)[0]
    except ModelNotFoundError:
        return None


def _download(hub: Any, reference: RepositoryReference) -> Path:
    repo, revision = reference.repo, reference.revision
    try:
        siblings = hub.HfApi().model_info(repo, revision=revision).siblings or []
        names = choose_files([sibling.rfilename for sibling in siblings], reference)
        paths = [Path(hub.hf_hub_download(repo, name, revision=revision)) for name in names]
        return paths[0]
    except hub.errors.GatedRepoError as error:
        raise ModelFetchError(
            f"{repo} is gated: its owner grants access per account",
            hint="accept its terms on the hub, then set HF_TOKEN to a token of that account",
        ) from error
    except hub.errors.RepositoryNotFoundError as error:
        raise ModelNotFoundError(
            f"the hub has no repository {repo} that this account may read",
            hint="check the spelling; for a private one, set HF_TOKEN",
        ) from error
    except hub.errors.RevisionNotFoundError as error:
        raise ModelNotFoundError(f"{repo} has no revision {revision!r}") from error
    except ModelNotFoundError:
        raise
    except Exception as error:  # the hub's HTTP library differs between its versions, and its errors with it
        if not _is_transport_error(error, hub):
            raise
        where = os.environ.get("HF_ENDPOINT", "the hub")
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelFetchError(
            f"cannot fetch {repo} from {where}: {first_line}",
            hint="check the network, HF_ENDPOINT and HF_TOKEN; --offline uses only what is here",
        ) from error


def _is_transport_error(error: Exception, hub: Any) -> bool:
    modules = {cls.__module__.partition(".")[0] for cls in type(error).__mro__}
    return isinstance(error, OSError | hub.errors.HfHubHTTPError) or bool(modules & {"httpx", "httpcore", "requests"})


def _is_quant(name: str, quant: str) -> bool:
    """Whether a file or folder name carries the quantisation as a word of its own: Q4_K is not in Q4_K_M."""
    return re.search(rf"(?:^|[-./_]){re.escape(quant)}(?=[-./])", name, re.IGNORECASE) is not None
