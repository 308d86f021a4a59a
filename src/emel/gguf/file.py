"""An open GGUF file: the package's public face."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from emel.gguf.metadata import Metadata
from emel.gguf.reader import (
    CloseFile,
    PrefetchTensors,
    ReaderContext,
    ReaderMachine,
    ReaderState,
    ReadFile,
    VerifyFile,
)
from emel.gguf.tensor_reader import TensorReader
from emel.io.errors import SourceError
from emel.io.platform import SYSTEM, Platform
from emel.io.source import Strategy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from emel.gguf.errors import GgufError
    from emel.gguf.tensors import TensorInfo


class GgufFile:
    """Metadata, tensor descriptions and tensor bytes of one file; made by `open_gguf`, a context manager.

    Closing gives up the file; metadata and descriptions stay. Views of tensor data taken before stay valid too, and
    keep the mapping alive until the last of them is gone. One thread at a time.
    """

    def __init__(self, machine: ReaderMachine) -> None:
        contents = machine.context.contents
        assert contents is not None
        self._machine = machine
        self.path = machine.context.path
        self.version = contents.version
        self.alignment = contents.alignment
        self.metadata = Metadata(contents.entries)
        self.tensors: dict[str, TensorInfo] = contents.tensors

    @property
    def n_bytes(self) -> int:
        """Size of the file in bytes; SourceError when it is closed."""
        return len(self._bytes())

    def tensor_data(self, name: str) -> memoryview:
        """The bytes of a tensor as they lie in the file: read-only, not copied; for looking, not for loading.

        A file that shrinks while a view of its mapping is read ends the process: `open_reader` has no such moment.
        KeyError for an unknown name; SourceError when the file is closed or has shrunk since it was opened.
        """
        info = self.tensors[name]
        self.verify()
        return self._bytes()[info.offset : info.end]

    def verify(self) -> None:
        """Raises SourceError when the file has shrunk: call it just before its bytes are read in bulk."""
        if self._machine.state is ReaderState.READY:
            self._machine.dispatch(VerifyFile())
        self._bytes()

    def prefetch(self) -> None:
        """Has the system start reading all tensor data (a hint; nothing waits); SourceError when the file is closed."""
        self.verify()
        self._machine.dispatch(PrefetchTensors())

    def open_reader(self, tensors: Mapping[str, TensorInfo] | None = None) -> TensorReader:
        """Reads tensors, by default the file's own, into memory of the caller's; close it after use.

        SourceError when this file is closed, or the one at its path can no longer be had or has another size.
        """
        return TensorReader(self._machine.context.platform, self.path, self.n_bytes, tensors or self.tensors)

    def close(self) -> None:
        """Gives the file up; more than once is fine."""
        if self._machine.state is ReaderState.READY:
            self._machine.dispatch(CloseFile())

    def _bytes(self) -> memoryview:
        context = self._machine.context
        if context.error is not None:
            raise context.error
        view = context.view
        if view is None:
            raise SourceError(f"{self.path!r} is closed: open it again")
        return view

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<GgufFile {self.path!r}: {len(self.tensors)} tensors, {self._machine.state.value}>"


def open_gguf(
    path: str | os.PathLike[str], *, strategy: Strategy = Strategy.AUTO, platform: Platform = SYSTEM
) -> GgufFile:
    """Opens and parses the GGUF file at path; nothing of the tensors is read.

    Raises SourceError (an OSError) when the file cannot be had, GgufError (a ValueError) when it is not a sound GGUF
    file of a version and layout EMEL reads; one line each.
    """
    machine = ReaderMachine(ReaderContext(platform=platform))
    machine.dispatch(ReadFile(os.fsdecode(path), strategy))
    error: SourceError | GgufError | None = machine.context.error
    if error is not None:
        raise error
    return GgufFile(machine)
