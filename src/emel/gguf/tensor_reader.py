"""Tensor bytes by positional reads: what a file that shrinks at any moment turns into an error, never a signal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from emel.io.descriptor import read_exactly
from emel.io.parts import OpenedPart, close_parts, open_parts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from emel.gguf.tensors import TensorInfo
    from emel.io.parts import FilePart
    from emel.io.platform import Platform


class TensorReader:
    """Reads the tensors of a model's files through descriptors of its own; a context manager that closes them.

    SourceError when a file cannot be opened or no longer has the `n_bytes` it was parsed with.
    """

    def __init__(self, platform: Platform, parts: Sequence[FilePart], tensors: Mapping[str, TensorInfo]) -> None:
        self._platform = platform
        self._tensors = tensors
        self._opened: tuple[OpenedPart, ...] = open_parts(platform, parts)

    @property
    def opened(self) -> tuple[OpenedPart, ...]:
        """The open files; until `close`."""
        return self._opened

    def read_into(self, name: str, target: memoryview) -> None:
        """Fills `target`, as many bytes as the tensor has; KeyError for an unknown name, SourceError for lost bytes."""
        info = self._tensors[name]
        if len(target) != info.n_bytes:
            raise ValueError(f"tensor {name!r} has {info.n_bytes} bytes, the target {len(target)}")
        part = self._opened[info.part]
        read_exactly(self._platform, part.path, part.file, target, info.offset)

    def read(self, name: str) -> bytearray:
        """The bytes of a tensor; errors as for `read_into`."""
        data = bytearray(self._tensors[name].n_bytes)
        with memoryview(data) as target:
            self.read_into(name, target)
        return data

    def close(self) -> None:
        """Closes the descriptors; harmless when repeated."""
        opened, self._opened = self._opened, ()
        close_parts(self._platform, opened)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
