"""Opening a model file: a regular, non-empty file, or one clear error."""

from __future__ import annotations

import errno
import stat
from typing import TYPE_CHECKING

from emel.io.errors import SourceError
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    import os

    from emel.io.platform import Platform

CHUNK_BYTES = 1 << 20

_REASONS = {
    errno.ENOENT: "no such file: check the path",
    errno.ENOTDIR: "no such file: a part of the path is not a folder",
    errno.EACCES: "permission denied: make the file readable for this user",
    errno.EPERM: "permission denied: make the file readable for this user",
    errno.EISDIR: "is a folder: name the .gguf file in it",
    errno.ENAMETOOLONG: "the path is too long for this system",
    errno.ELOOP: "too many symbolic links on the path",
    errno.EMFILE: "too many open files in this process: raise the limit (ulimit -n)",
    errno.ENFILE: "too many open files on this machine",
}

_KINDS = {
    stat.S_IFDIR: "a folder: name the .gguf file in it",
    stat.S_IFIFO: "a pipe: a model is read from a regular file",
    stat.S_IFSOCK: "a socket: a model is read from a regular file",
    stat.S_IFCHR: "a device: a model is read from a regular file",
    stat.S_IFBLK: "a device: a model is read from a regular file",
}


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A descriptor and the size in bytes its file had when it was opened."""

    descriptor: int
    n_bytes: int


def open_regular(platform: Platform, path: str) -> OpenedFile:
    """Opens a regular, non-empty file for reading; SourceError says why it cannot, and nothing stays open."""
    try:
        descriptor = platform.open(path)
    except (OSError, ValueError) as error:
        raise SourceError(f"cannot open {path!r}: {reason_of(error)}") from error
    try:
        return OpenedFile(descriptor, _checked_size(platform, path, descriptor))
    except BaseException:
        close_quietly(platform, descriptor)
        raise


def open_past_cache(platform: Platform, path: str, opened: OpenedFile) -> OpenedFile | None:
    """The same file for reads past the page cache, `opened` is closed then; None where the system has no such reads."""
    try:
        descriptor = platform.open_direct(path)
    except OSError:
        return None
    close_quietly(platform, opened.descriptor)
    return OpenedFile(descriptor, opened.n_bytes)


def _checked_size(platform: Platform, path: str, descriptor: int) -> int:
    try:
        status = platform.status(descriptor)
    except OSError as error:
        raise SourceError(f"cannot open {path!r}: {reason_of(error)}") from error
    if kind := wrong_kind(status):
        raise SourceError(f"cannot open {path!r}: it is {kind}")
    if status.st_size == 0:
        raise SourceError(f"cannot open {path!r}: the file is empty (0 bytes): fetch it again")
    return status.st_size


def read_exactly(platform: Platform, path: str, opened: OpenedFile, target: memoryview, offset: int) -> None:
    """Fills `target` (bytes) with what lies at `offset`, chunk by chunk; SourceError when it cannot be had, or ends."""
    position = 0
    while position < len(target):
        with target[position : position + CHUNK_BYTES] as chunk:
            try:
                n_read = platform.read_into(opened.descriptor, chunk, offset + position)
            except OSError as error:
                raise SourceError(f"cannot read {path!r} at byte {offset + position}: {reason_of(error)}") from error
        if n_read == 0:
            raise SourceError(
                f"{path!r} shrank from {opened.n_bytes} to {offset + position} bytes while it was read: fetch it again"
            )
        position += n_read


def wrong_kind(status: os.stat_result) -> str | None:
    """What is there instead of a regular file, and what to do; None for a regular file."""
    if stat.S_ISREG(status.st_mode):
        return None
    return _KINDS.get(stat.S_IFMT(status.st_mode), "not a regular file")


def close_quietly(platform: Platform, descriptor: int) -> None:
    """Closes a descriptor that was only read: the system frees it even when close reports an error."""
    try:
        platform.close(descriptor)
    except OSError:
        return


def reason_of(error: BaseException) -> str:
    """Why a platform call failed, in words that say what to do where that is known."""
    if isinstance(error, OSError) and error.errno is not None:
        return _REASONS.get(error.errno, error.strerror or str(error))
    return str(error) or type(error).__name__
