"""An open GGUF file: the package's public face."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from emel.gguf.metadata import Metadata
from emel.gguf.overrides import Scalar, with_overrides
from emel.gguf.reader import (
    CloseFile,
    PrefetchTensors,
    ReaderContext,
    ReaderMachine,
    ReaderState,
    ReadFile,
    VerifyFile,
)
from emel.gguf.split import check_part, join_tensors, part_paths
from emel.gguf.tensor_reader import TensorReader
from emel.io.errors import SourceError
from emel.io.parts import FilePart
from emel.io.platform import SYSTEM, Platform
from emel.io.source import Strategy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

    from emel.gguf.errors import GgufError
    from emel.gguf.parser import GgufContents
    from emel.gguf.tensors import TensorInfo


class GgufFile:
    """Metadata, tensor descriptions and tensor bytes of one model; made by `open_gguf`, a context manager.

    A split model has several `parts`, each a file with its bytes; `part` of a tensor's description says in which it
    lies. Metadata, version and alignment are those of the first.

    Closing gives up the file; metadata and descriptions stay. Views of tensor data taken before stay valid too, and
    keep the mapping alive until the last of them is gone. One thread at a time.
    """

    def __init__(self, machines: Sequence[ReaderMachine], overrides: Mapping[str, Scalar]) -> None:
        contents = [_contents_of(machine) for machine in machines]
        self._machines = machines
        self.path = machines[0].context.path
        self.version = contents[0].version
        self.alignment = contents[0].alignment
        self.metadata = Metadata(with_overrides(contents[0].entries, overrides))
        self.tensors: dict[str, TensorInfo] = join_tensors(
            [machine.context.path for machine in machines], [each.tensors for each in contents], contents[0].entries
        )

    @property
    def n_bytes(self) -> int:
        """Size of all parts in bytes; SourceError when the file is closed."""
        return sum(part.n_bytes for part in self.parts)

    @property
    def parts(self) -> list[FilePart]:
        """Path and size of each part, one for a model that is not split; SourceError when the file is closed."""
        return [FilePart(machine.context.path, len(_bytes_of(machine))) for machine in self._machines]

    def tensor_data(self, name: str) -> memoryview:
        """The bytes of a tensor as they lie in the file: read-only, not copied; for looking, not for loading.

        A file that shrinks while a view of its mapping is read ends the process: `open_reader` has no such moment.
        KeyError for an unknown name; SourceError when the file is closed or has shrunk since it was opened.
        """
        info = self.tensors[name]
        machine = self._machines[info.part]
        _verify(machine)
        return _bytes_of(machine)[info.offset : info.end]

    def verify(self) -> None:
        """Raises SourceError when the file has shrunk: call it just before its bytes are read in bulk."""
        for machine in self._machines:
            _verify(machine)

    def prefetch(self) -> None:
        """Has the system start reading all tensor data (a hint; nothing waits); SourceError when the file is closed."""
        self.verify()
        for machine in self._machines:
            machine.dispatch(PrefetchTensors())

    def open_reader(self, tensors: Mapping[str, TensorInfo] | None = None) -> TensorReader:
        """Reads tensors, by default the file's own, into memory of the caller's; close it after use.

        SourceError when this file is closed, or the one at its path can no longer be had or has another size.
        """
        return TensorReader(self._machines[0].context.platform, self.parts, tensors or self.tensors)

    def close(self) -> None:
        """Gives the file up; more than once is fine."""
        close_all(self._machines)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<GgufFile {self.path!r}: {len(self.tensors)} tensors, {self._machines[0].state.value}>"


def open_gguf(
    path: str | os.PathLike[str],
    *,
    strategy: Strategy = Strategy.AUTO,
    platform: Platform = SYSTEM,
    overrides: Mapping[str, Scalar] | None = None,
) -> GgufFile:
    """Opens and parses the GGUF file at path; nothing of the tensors is read.

    Of a split model it is the first part; the others are opened, too. `overrides`: values of metadata that stand in
    place of the file's. Raises SourceError (an OSError) when a file cannot be had, GgufError (a ValueError) when it is
    not a sound GGUF file of a version and layout EMEL reads, MetadataError for an override; one line each.
    """
    first = _read(os.fsdecode(path), strategy, platform)
    machines = [first]
    try:
        paths = part_paths(first.context.path, _contents_of(first).entries)
        for index, each in enumerate(paths[1:], 1):
            machines.append(_read(each, strategy, platform))
            check_part(each, _contents_of(machines[index]).entries, index, len(paths))
        return GgufFile(machines, overrides or {})
    except BaseException:
        close_all(machines)
        raise


def close_all(machines: Iterable[ReaderMachine]) -> None:
    """Gives up the files of machines that have one."""
    for machine in machines:
        if machine.state is ReaderState.READY:
            machine.dispatch(CloseFile())


def _read(path: str, strategy: Strategy, platform: Platform) -> ReaderMachine:
    machine = ReaderMachine(ReaderContext(platform=platform))
    machine.dispatch(ReadFile(path, strategy))
    error: SourceError | GgufError | None = machine.context.error
    if error is not None:
        raise error
    return machine


def _contents_of(machine: ReaderMachine) -> GgufContents:
    contents = machine.context.contents
    assert contents is not None
    return contents


def _verify(machine: ReaderMachine) -> None:
    if machine.state is ReaderState.READY:
        machine.dispatch(VerifyFile())
    _bytes_of(machine)


def _bytes_of(machine: ReaderMachine) -> memoryview:
    context = machine.context
    if context.error is not None:
        raise context.error
    view = context.view
    if view is None:
        raise SourceError(f"{context.path!r} is closed: open it again")
    return view
