"""A quantised copy of a GGUF file, made some rows at a time: it takes memory for these and one tensor's new bytes.

Rows are read, dequantised and quantised by a few threads (NumPy works outside the interpreter's lock), and written in
their order.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from emel.convert.errors import ConvertError
from emel.convert.mixes import ALIASES, MIXES, Mix, ModelShape, choose_types, find_mix
from emel.convert.values import encode
from emel.convert.writing import QUANTIZATION_VERSION, GgufOutput, copy_metadata
from emel.gguf import open_gguf
from emel.kernel.dequantize import dequantize
from emel.kernel.threads import choose_threads
from emel.lazy_dataclasses import dataclass
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from emel.gguf import GgufFile, TensorInfo
    from emel.gguf.tensor_reader import TensorReader

_PIECE_VALUES = 1 << 20
_SOURCES = (TensorType.F32, TensorType.F16, TensorType.BF16)


@dataclass(frozen=True, slots=True)
class Progress:
    """What was just written: a tensor, its types before and after, and how many of how many are done."""

    name: str
    before: TensorType
    after: TensorType
    n_done: int
    n_tensors: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Bytes of all tensors before and after."""

    n_bytes_before: int
    n_bytes_after: int
    n_values: int


def checked_mix(name: str) -> Mix:
    """The mix of a name; ConvertError naming those there are."""
    mix = find_mix(name)
    if mix is None:
        known = ", ".join([*MIXES, *ALIASES])
        raise ConvertError(f"type {name!r} is unknown: allowed are {known}")
    return mix


def quantize_file(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    mix: Mix,
    *,
    allow_requantize: bool = False,
    n_threads: int | None = None,
    report: Callable[[Progress], None] | None = None,
) -> Summary:
    """Writes `target`, a copy of `source` with its matrices in the types of `mix`; all parts of a split model in one.

    ConvertError when a matrix is quantised already (unless allowed), has values the type cannot hold, or `target`
    is a file that is read; SourceError and GgufError when the source cannot be read.
    """
    with open_gguf(source) as file:
        if Path(target).exists() and any(Path(target).samefile(part.path) for part in file.parts):
            raise ConvertError(f"{str(target)!r} is the file that is read: give another name for the new one")
        types = choose_types(file.tensors, mix, shape_of(file))
        _check_sources(file.tensors, types, allow_requantize=allow_requantize)
        with GgufOutput(target, file.metadata.get_str("general.architecture")) as output:
            copy_metadata(file, output)
            output.writer.add_file_type(mix.file_type)
            output.writer.add_quantization_version(QUANTIZATION_VERSION)
            for name, info in file.tensors.items():
                output.declare(name, info.shape, types[name])
            output.begin()
            _write_tensors(file, output, types, choose_threads(n_threads).n_threads, report)
        return Summary(
            sum(info.n_bytes for info in file.tensors.values()),
            sum(types[name].n_bytes(info.rows, info.cols) for name, info in file.tensors.items()),
            sum(info.n_values for info in file.tensors.values()),
        )


def shape_of(file: GgufFile) -> ModelShape:
    """What the mixes ask of a model."""
    metadata = file.metadata
    name = metadata.get_str("general.architecture")
    heads, kv_heads = (metadata.get(f"{name}.attention.{key}") for key in ("head_count", "head_count_kv"))
    return ModelShape(
        name,
        metadata.get_int(f"{name}.block_count", 0),
        metadata.get_int(f"{name}.expert_count", 0),
        is_grouped=isinstance(heads, int) and isinstance(kv_heads, int) and kv_heads < heads,
    )


def _check_sources(
    tensors: Mapping[str, TensorInfo], types: Mapping[str, TensorType], *, allow_requantize: bool
) -> None:
    for name, info in tensors.items():
        if info.type is types[name] or info.type in _SOURCES:
            continue
        if not info.type.is_quantized:
            raise ConvertError(f"tensor {name!r} is {info.type.name}: it cannot be quantised")
        if not allow_requantize:
            raise ConvertError(
                f"tensor {name!r} is {info.type.name} already: making {types[name].name} of it would lose more",
                hint="take the F32, F16 or BF16 file, or --allow-requantize",
            )


def _write_tensors(
    file: GgufFile,
    output: GgufOutput,
    types: Mapping[str, TensorType],
    n_threads: int,
    report: Callable[[Progress], None] | None,
) -> None:
    pieces = {name: list(_pieces_of(info)) for name, info in file.tensors.items()}
    by_name = {piece.name: piece for several in pieces.values() for piece in several}
    with file.open_reader(by_name) as reader, ThreadPoolExecutor(n_threads, "emel-quantize") as executor:
        for n_done, (name, info) in enumerate(file.tensors.items(), 1):

            def convert(piece: TensorInfo, info: TensorInfo = info) -> NDArray[np.uint8] | bytearray:
                return _convert(reader, piece, info, types[info.name])

            for data in executor.map(convert, pieces[name]):
                output.add(data)
            output.end_tensor()
            if report is not None:
                report(Progress(name, info.type, types[name], n_done, len(types)))


def _convert(
    reader: TensorReader, piece: TensorInfo, info: TensorInfo, type_: TensorType
) -> NDArray[np.uint8] | bytearray:
    """The new bytes of some rows of a tensor."""
    data = reader.read(piece.name)
    if info.type is type_:
        return data
    values = np.frombuffer(dequantize(info.type, data, piece.n_values), dtype=np.float32)
    return encode(values.reshape(piece.rows, piece.cols), type_, info.name)


def _pieces_of(info: TensorInfo) -> Iterator[TensorInfo]:
    """The rows of a tensor, some at a time, as tensors."""
    step = max(1, _PIECE_VALUES // info.cols)
    row_bytes = info.type.row_bytes(info.cols)
    for begin in range(0, info.rows, step):
        rows = min(step, info.rows - begin)
        yield replace(
            info,
            name=f"{info.name}[{begin}]",
            shape=(rows, info.cols),
            offset=info.offset + begin * row_bytes,
            n_bytes=rows * row_bytes,
        )
