"""Tensor bytes by positional reads: what a file that shrinks at any moment turns into an error, never a signal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from emel.io.descriptor import close_quietly, open_regular, read_exactly
from emel.io.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from emel.gguf.tensors import TensorInfo
    from emel.io.platform import Platform


class TensorReader:
    """Reads the tensors of one file through a descriptor of its own; a context manager that closes it.

    SourceError when the file cannot be opened or no longer has the `n_bytes` it was parsed with.
    """

    def __init__(self, platform: Platform, path: str, n_bytes: int, tensors: Mapping[str, TensorInfo]) -> None:
        self._platform = platform
        self._path = path
        self._tensors = tensors
        self._opened = open_regular(platform, path)
        seen = self._opened.n_bytes
        if seen != n_bytes:
            self.close()
            change = "shrank" if seen < n_bytes else "grew"
            raise SourceError(f"{path!r} {change} from {n_bytes} to {seen} bytes while it was in use: fetch it again")

    def read_into(self, name: str, target: memoryview) -> None:
        """Fills `target`, as many bytes as the tensor has; KeyError for an unknown name, SourceError for lost bytes."""
        info = self._tensors[name]
        if len(target) != info.n_bytes:
            raise ValueError(f"tensor {name!r} has {info.n_bytes} bytes, the target {len(target)}")
        read_exactly(self._platform, self._path, self._opened, target, info.offset)

    def read(self, name: str) -> bytearray:
        """The bytes of a tensor; errors as for `read_into`."""
        data = bytearray(self._tensors[name].n_bytes)
        with memoryview(data) as target:
            self.read_into(name, target)
        return data

    def close(self) -> None:
        """Closes the descriptor; call it once."""
        close_quietly(self._platform, self._opened.descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
