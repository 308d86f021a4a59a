"""Logits kept in a file to compare with: safetensors, so that other programs can write and read them too.

    tokens  I32 (n_chunks, n_ctx)         the chunks, a begin token already in its place
    logits  F32 or F64 (n_rows, n_vocab)  of the tokens n_ctx // 2 to n_ctx - 2 of every chunk, in order

The format: 8 bytes of little-endian length, a JSON header of that length, then the data
(https://github.com/huggingface/safetensors/blob/v0.4.3/README.md#format). It is written row by row, which the package
of that name cannot do, and appears under its name only when it is whole.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from emel.accuracy.chunks import Chunks
from emel.errors import RequestError
from emel.io.publishing import PartialFile

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

_TYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}
_MAX_HEADER_BYTES = 1 << 20


class LogitsWriter:
    """Writes the logits of chunks; a context manager that leaves a file only when all rows were added."""

    def __init__(self, path: str | os.PathLike[str], chunks: Chunks, n_vocab: int, kind: str = "F32") -> None:
        self._type = _TYPES[kind]
        self._n_left = len(chunks.ids) * chunks.n_scored
        tokens = np.asarray(chunks.ids, dtype="<i4")
        shape = [self._n_left, n_vocab]
        end = tokens.nbytes + self._n_left * n_vocab * self._type.itemsize
        header = {
            "__metadata__": {"format": "emel-logits"},
            "tokens": {"dtype": "I32", "shape": list(tokens.shape), "data_offsets": [0, tokens.nbytes]},
            "logits": {"dtype": kind, "shape": shape, "data_offsets": [tokens.nbytes, end]},
        }
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        self._partial = PartialFile(Path(path))
        self._stream = self._partial.path.open("wb")
        self._stream.write(len(text).to_bytes(8, "little") + text + tokens.tobytes())

    def add(self, rows: NDArray[np.floating]) -> None:
        """The next rows of logits (n, n_vocab)."""
        self._n_left -= len(rows)
        self._stream.write(np.ascontiguousarray(rows, dtype=self._type).data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._stream.close()
            if kind is None:
                assert self._n_left == 0, f"{self._n_left} rows are missing"
                self._partial.publish()
        finally:
            self._partial.close()


class SavedLogits:
    """The logits of a file: `chunks`, and the `rows` of each. RequestError for a file that is no such thing."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        with self._path.open("rb") as stream:
            header = _read_header(self._path, stream.read(8), stream.read(_MAX_HEADER_BYTES))
        begin, entries = header
        tokens, logits = _entry(self._path, entries, "tokens"), _entry(self._path, entries, "logits")
        n_chunks, n_ctx = tokens["shape"]
        n_rows, self.n_vocab = logits["shape"]
        kind = _TYPES.get(logits["dtype"])
        if tokens["dtype"] != "I32" or kind is None or n_rows != n_chunks * (n_ctx - 1 - n_ctx // 2) or not n_rows:
            raise _no_logits(
                self._path, f"tokens {tokens['dtype']} {tokens['shape']}, logits {logits['dtype']} {logits['shape']}"
            )
        at, self._type = begin + tokens["data_offsets"][0], kind
        self._begin = begin + logits["data_offsets"][0]
        needed = self._begin + n_rows * self.n_vocab * kind.itemsize
        if self._path.stat().st_size < needed:
            raise _no_logits(self._path, f"{self._path.stat().st_size} bytes, its header promises {needed}")
        ids = np.fromfile(self._path, dtype="<i4", count=n_chunks * n_ctx, offset=at).reshape(n_chunks, n_ctx)
        self.chunks = Chunks(n_ctx, tuple(map(tuple, ids.tolist())))

    def rows(self, chunk: int) -> NDArray[np.floating]:
        """Logits (n_scored, n_vocab) of one chunk, as they were saved."""
        n_scored = self.chunks.n_scored
        offset = self._begin + chunk * n_scored * self.n_vocab * self._type.itemsize
        found: NDArray[np.floating] = np.fromfile(
            self._path, dtype=self._type, count=n_scored * self.n_vocab, offset=offset
        )
        return found.reshape(n_scored, self.n_vocab)


def _read_header(path: Path, length: bytes, text: bytes) -> tuple[int, dict[str, Any]]:
    """Where the data begins, and the header."""
    n_bytes = int.from_bytes(length, "little")
    try:
        entries = json.loads(text[:n_bytes]) if len(length) == 8 and n_bytes <= len(text) else None
    except ValueError:
        entries = None
    if not isinstance(entries, dict):
        raise _no_logits(path, "no safetensors header")
    return 8 + n_bytes, entries


def _entry(path: Path, entries: dict[str, Any], name: str) -> dict[str, Any]:
    """The description of a matrix."""
    match entries.get(name):
        case {"dtype": str(), "shape": [int(rows), int(cols)], "data_offsets": [int(begin), int()]}:
            if min(rows, cols, begin) >= 0:
                return dict(entries[name])
    raise _no_logits(path, f"no matrix {name!r}")


def _no_logits(path: Path, seen: str) -> RequestError:
    return RequestError(
        f"{os.fspath(path)!r} has no saved logits: {seen}", hint="emel accuracy --save-logits writes such a file"
    )
