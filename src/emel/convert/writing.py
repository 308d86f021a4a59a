"""A GGUF file written tensor by tensor, by the gguf package; it appears under its name only when it is whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from emel.convert.errors import ConvertError
from emel.gguf.arrays import StringArray
from emel.io.publishing import PartialFile

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

    from emel.gguf import GgufFile
    from emel.tensor.types import TensorType

QUANTIZATION_VERSION = 2
"""What K-quants and the others are laid out by (`GGML_QNT_VERSION`)."""
_OWN_KEYS = ("general.architecture", "general.file_type", "general.quantization_version", "general.alignment")
_ARRAY = "array of "


def load_gguf() -> Any:
    """The gguf package; ConvertError that says how to get it."""
    try:
        import gguf
    except ImportError:
        raise ConvertError(
            "this needs the gguf package, which is not installed", hint="pip install 'emel[convert]'"
        ) from None
    return gguf


class GgufOutput:
    """A file in the making; a context manager, which takes away what was not finished.

    1. `writer` (a gguf.GGUFWriter) gets the metadata. 2. `declare` every tensor. 3. `begin`, and the bytes of every
    tensor in the same order, each by one or more calls of `add` and one of `end_tensor`.
    """

    def __init__(self, path: str | os.PathLike[str], architecture: str) -> None:
        self.writer = load_gguf().GGUFWriter(None, architecture)
        self._partial = PartialFile(Path(path))
        self._sizes: list[tuple[str, int]] = []
        self._n_done = self._n_bytes = 0

    def declare(self, name: str, shape: tuple[int, ...], type_: TensorType) -> None:
        """The next tensor: `shape` in values, the fastest dimension last."""
        n_bytes = type_.n_bytes(int(np.prod(shape[:-1])), shape[-1])
        # The package takes the shape in values unless it is told that the data are bytes.
        kind = load_gguf().GGMLQuantizationType[type_.name]
        self.writer.add_tensor_info(name, shape, np.dtype(np.float32), n_bytes, raw_dtype=kind)
        self._sizes.append((name, n_bytes))

    def begin(self) -> None:
        """Writes everything that comes before the data."""
        self.writer.write_header_to_file(self._partial.path)
        self.writer.write_kv_data_to_file()
        self.writer.write_ti_data_to_file()
        self._stream = self.writer.fout[0]
        self.writer.write_padding(self._stream, self._stream.tell())

    def add(self, data: NDArray[np.uint8] | bytearray) -> None:
        """More bytes of the current tensor."""
        self._stream.write(data)
        self._n_bytes += len(data)

    def end_tensor(self) -> None:
        """The current tensor is whole."""
        name, n_bytes = self._sizes[self._n_done]
        assert self._n_bytes == n_bytes, f"{name}: {self._n_bytes} of {n_bytes} bytes"
        self.writer.write_padding(self._stream, n_bytes)
        self._n_done, self._n_bytes = self._n_done + 1, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.writer.fout is not None:
                self.writer.close()
            if kind is None:
                assert self._n_done == len(self._sizes), "tensors are missing"
                self._partial.publish()
        finally:
            self._partial.close()


def copy_metadata(file: GgufFile, output: GgufOutput, skipped: Iterable[str] = ()) -> None:
    """Every entry of a file as it is, but those that tell how the new one is written, and of parts it is split into."""
    gguf = load_gguf()
    without = {*_OWN_KEYS, *skipped}
    for key, value in file.metadata.items():
        if key in without or key.startswith("split."):
            continue
        kind = file.metadata.type_name(key)
        if not kind.startswith(_ARRAY):
            output.writer.add_key_value(key, value, gguf.GGUFValueType[kind])
            continue
        assert isinstance(value, StringArray | memoryview)
        items = list(value.iter_bytes()) if isinstance(value, StringArray) else value.tolist()
        if items:  # the package cannot write empty arrays
            element = gguf.GGUFValueType[kind.removeprefix(_ARRAY)]
            output.writer.add_key_value(key, items, gguf.GGUFValueType.ARRAY, sub_type=element)
