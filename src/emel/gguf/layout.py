"""Where the tensors lie: aligned, one after the other, inside the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.gguf.errors import GgufError, quoted
from emel.gguf.tensors import TensorInfo
from emel.gguf.values import ValueType

if TYPE_CHECKING:
    from emel.gguf.entries import Entry

ALIGNMENT_KEY = "general.alignment"
DEFAULT_ALIGNMENT = 32
# The format asks for a multiple of 8; a page of 64 KiB is the largest that mapping could profit from.
MIN_ALIGNMENT, MAX_ALIGNMENT = 8, 65536


def alignment_of(entries: dict[str, Entry]) -> int:
    """The file's alignment in bytes: `general.alignment`, or 32; GgufError for a value no tensor could be placed by."""
    entry = entries.get(ALIGNMENT_KEY)
    if entry is None:
        return DEFAULT_ALIGNMENT
    if entry.type is not ValueType.UINT32 or not isinstance(entry.value, int):
        raise GgufError(f"metadata {ALIGNMENT_KEY!r} has type {entry.type_name}: allowed is UINT32")
    alignment = entry.value
    if not MIN_ALIGNMENT <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise GgufError(
            f"metadata {ALIGNMENT_KEY!r} is {alignment}: "
            f"allowed are powers of two from {MIN_ALIGNMENT} to {MAX_ALIGNMENT}"
        )
    return alignment


def align_up(position: int, alignment: int) -> int:
    """The next multiple of alignment at or after position."""
    return (position + alignment - 1) // alignment * alignment


def place_tensors(tensors: list[TensorInfo], data_start: int, alignment: int, file_bytes: int) -> dict[str, TensorInfo]:
    """Checks every offset and makes it absolute.

    Tensors lie in file order, each at the first aligned byte after the one before; all of them end inside the file
    (padding after the last one may be missing).
    """
    placed: dict[str, TensorInfo] = {}
    expected = 0
    for tensor in tensors:
        _check_offset(tensor, expected, alignment)
        end = data_start + tensor.offset + tensor.n_bytes
        if end > file_bytes:
            raise GgufError(
                f"tensor {quoted(tensor.name)} ends at byte {end}, but the file has {file_bytes} bytes: "
                "it is truncated, fetch it again"
            )
        offset = data_start + tensor.offset
        placed[tensor.name] = TensorInfo(tensor.name, tensor.shape, tensor.type, offset, tensor.n_bytes)
        expected = align_up(tensor.offset + tensor.n_bytes, alignment)
    return placed


def _check_offset(tensor: TensorInfo, expected: int, alignment: int) -> None:
    if tensor.offset == expected:
        return
    if tensor.offset % alignment:
        problem = f"is not a multiple of the alignment {alignment}"
    elif tensor.offset < expected:
        problem = f"overlaps or precedes the tensors before it, which end at {expected}"
    else:
        problem = f"leaves a gap after the tensors before it, which end at {expected}"
    raise GgufError(f"tensor {quoted(tensor.name)} has offset {tensor.offset}, which {problem}: the file is damaged")
