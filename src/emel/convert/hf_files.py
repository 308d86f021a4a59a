"""A Hugging Face directory: config.json, and tensors in safetensors files, whole or in shards.

The format (https://github.com/huggingface/safetensors/blob/v0.4.3/README.md#format) is read here, since the package of
that name gives NumPy no bfloat16, and reads a tensor only with all its file mapped.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from emel.convert.errors import ConvertError
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_MAX_HEADER_BYTES = 100 << 20


@dataclass(frozen=True, slots=True)
class HfTensor:
    """A tensor in a file; nothing of it is read before `load`."""

    path: Path
    name: str
    kind: str
    shape: tuple[int, ...]
    offset: int

    def load(self) -> NDArray[np.float32]:
        """Its values as float32 of its shape; ConvertError for other kinds of values, and when the file ends before."""
        if self.kind not in _TYPES:
            raise ConvertError(f"tensor {self.name!r} is {self.kind}: {', '.join(_TYPES)} are supported")
        data = self._read(_TYPES[self.kind])
        if self.kind == "BF16":
            data = (data.astype(np.uint32) << 16).view(np.float32)
        return data.astype(np.float32, copy=False).reshape(self.shape)

    def load_bytes(self) -> NDArray[np.uint8]:
        """Its bytes in its shape; ConvertError for values that are no bytes, and when the file ends before."""
        if self.kind != "U8":
            raise ConvertError(f"tensor {self.name!r} is {self.kind}: bytes (U8) are needed")
        return self._read("u1").reshape(self.shape)

    def _read(self, kind: str) -> NDArray[Any]:
        n = int(np.prod(self.shape, dtype=np.int64))
        data = np.fromfile(self.path, dtype=kind, count=n, offset=self.offset)
        if len(data) != n:
            raise ConvertError(f"{str(self.path)!r} ends before tensor {self.name!r} does: fetch it again")
        return data


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; ConvertError when the file is not there or holds something else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConvertError(f"{str(path)!r} is missing: a Hugging Face model directory has it") from None
    except ValueError as error:
        raise ConvertError(f"{str(path)!r} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConvertError(f"{str(path)!r} is no JSON object")
    return found


def read_tensors(folder: Path) -> dict[str, HfTensor]:
    """All tensors of a directory by name; ConvertError when there are none, or a file is damaged."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        paths = [folder / name for name in sorted(set(read_json(index).get("weight_map", {}).values()))]
    else:
        paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise ConvertError(
            f"{str(folder)!r} has no .safetensors files",
            hint="weights in pickles (.bin) are not read: convert them first",
        )
    tensors: dict[str, HfTensor] = {}
    for path in paths:
        tensors |= _tensors_of(path)
    return tensors


def _tensors_of(path: Path) -> dict[str, HfTensor]:
    if not path.exists():
        raise ConvertError(f"{str(path)!r} is missing: the index names it")
    with path.open("rb") as stream:
        n_bytes = int.from_bytes(stream.read(8), "little")
        text = stream.read(min(n_bytes, _MAX_HEADER_BYTES))
    try:
        header = json.loads(text)
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        return {
            name: HfTensor(
                path, name, entry["dtype"], tuple(map(int, entry["shape"])), 8 + n_bytes + int(entry["data_offsets"][0])
            )
            for name, entry in entries.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ConvertError(f"{str(path)!r} has no sound safetensors header: fetch it again") from None
