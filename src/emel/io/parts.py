"""The files of one model, opened together: all of them as they were when they were looked at, or one clear error."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from emel.io.descriptor import OpenedFile, close_quietly, open_past_cache, open_regular
from emel.io.errors import SourceError
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from emel.io.platform import Platform


class FilePart(NamedTuple):
    """A file that tensors lie in, and its bytes when it was parsed."""

    path: str
    n_bytes: int


@dataclass(frozen=True, slots=True)
class OpenedPart:
    """A part and its open file; `is_direct`: what is read goes past the page cache."""

    path: str
    file: OpenedFile
    is_direct: bool = False


def open_parts(platform: Platform, parts: Sequence[FilePart], *, is_direct: bool = False) -> tuple[OpenedPart, ...]:
    """Every part, past the page cache where that is asked for and can be had.

    SourceError when one cannot be opened or has another size; nothing stays open then.
    """
    opened: list[OpenedPart] = []
    try:
        for part in parts:
            opened.append(OpenedPart(part.path, open_regular(platform, part.path)))
            _check_unchanged(part, opened[-1].file.n_bytes)
            direct = open_past_cache(platform, part.path, opened[-1].file) if is_direct else None
            if direct is not None:
                opened[-1] = OpenedPart(part.path, direct, is_direct=True)
    except BaseException:
        close_parts(platform, opened)
        raise
    return tuple(opened)


def close_parts(platform: Platform, opened: Iterable[OpenedPart]) -> None:
    """Closes them all."""
    for each in opened:
        close_quietly(platform, each.file.descriptor)


def _check_unchanged(part: FilePart, n_bytes: int) -> None:
    if n_bytes != part.n_bytes:
        change = "shrank" if n_bytes < part.n_bytes else "grew"
        raise SourceError(
            f"{part.path!r} {change} from {part.n_bytes} to {n_bytes} bytes while it was in use: fetch it again"
        )
