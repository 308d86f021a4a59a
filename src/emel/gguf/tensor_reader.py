"""Tensor bytes by positional reads: what a file that shrinks at any moment turns into an error, never a signal."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

from emel.io.descriptor import OpenedFile, close_quietly, open_regular, read_exactly
from emel.io.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from emel.gguf.tensors import TensorInfo
    from emel.io.platform import Platform


class FilePart(NamedTuple):
    """A file that tensors lie in, and its bytes when it was parsed."""

    path: str
    n_bytes: int


class TensorReader:
    """Reads the tensors of a model's files through descriptors of its own; a context manager that closes them.

    SourceError when a file cannot be opened or no longer has the `n_bytes` it was parsed with.
    """

    def __init__(self, platform: Platform, parts: Sequence[FilePart], tensors: Mapping[str, TensorInfo]) -> None:
        self._platform = platform
        self._parts = parts
        self._tensors = tensors
        self._opened: list[OpenedFile] = []
        try:
            for part in parts:
                self._opened.append(open_regular(platform, part.path))
                _check_unchanged(part, self._opened[-1].n_bytes)
        except BaseException:
            self.close()
            raise

    def read_into(self, name: str, target: memoryview) -> None:
        """Fills `target`, as many bytes as the tensor has; KeyError for an unknown name, SourceError for lost bytes."""
        info = self._tensors[name]
        if len(target) != info.n_bytes:
            raise ValueError(f"tensor {name!r} has {info.n_bytes} bytes, the target {len(target)}")
        read_exactly(self._platform, self._parts[info.part].path, self._opened[info.part], target, info.offset)

    def read(self, name: str) -> bytearray:
        """The bytes of a tensor; errors as for `read_into`."""
        data = bytearray(self._tensors[name].n_bytes)
        with memoryview(data) as target:
            self.read_into(name, target)
        return data

    def close(self) -> None:
        """Closes the descriptors; harmless when repeated."""
        while self._opened:
            close_quietly(self._platform, self._opened.pop().descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _check_unchanged(part: FilePart, n_bytes: int) -> None:
    if n_bytes != part.n_bytes:
        change = "shrank" if n_bytes < part.n_bytes else "grew"
        raise SourceError(
            f"{part.path!r} {change} from {part.n_bytes} to {n_bytes} bytes while it was in use: fetch it again"
        )
