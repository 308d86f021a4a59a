"""LoRA adapters (https://arxiv.org/abs/2106.09685), applied to the weights when they are loaded.

An adapter's file has, for a matrix W (rows, cols) of the model, A (rank, cols) as `NAME.lora_a` and B (rows, rank) as
`NAME.lora_b`; W becomes W + scale * alpha / rank * B A, alpha from `adapter.lora.alpha` (none or 0: W + scale * B A).
For the embedding the file has them the other way round: A (rows, rank), B (cols, rank).

1. The product is summed rank by rank, in float32, by separate multiplications and additions: the same bits everywhere.
2. Several adapters are added in the order they are given.
3. Changed matrices are kept as F16 (F32 ones as F32). Blocks of a few bits could not hold what an adapter adds: it is
   often smaller than their steps.
"""

from __future__ import annotations

import math
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from emel.gguf import open_gguf
from emel.kernel.dequantize import dequantize
from emel.lazy_dataclasses import dataclass
from emel.model.errors import ModelError
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from emel.gguf import GgufFile, TensorInfo
    from emel.gguf.tensor_reader import TensorReader

_A, _B = ".lora_a", ".lora_b"
_EMBEDDING = "token_embd.weight"
_PIECE_VALUES = 1 << 16
"""Values that are computed at a time: they stay in a core's cache."""


@dataclass(frozen=True, slots=True)
class AdapterChoice:
    """An adapter's file, and how strongly it is applied."""

    path: str | os.PathLike[str]
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class LowRank:
    """What one adapter adds to one matrix: factor * b a, for each expert where there are several."""

    factor: float
    a: NDArray[np.float32]  # (n_experts, rank, cols)
    b: NDArray[np.float32]  # (n_experts, rows, rank)


@dataclass(frozen=True, slots=True)
class Merge:
    """A matrix as the file has it, and what is added, in order."""

    source: TensorInfo
    added: tuple[LowRank, ...]


@dataclass(frozen=True, slots=True)
class Adapted:
    """A model's tensors with the types they get, what is merged into them, and a digest of all adapters."""

    tensors: Mapping[str, TensorInfo]
    merges: Mapping[str, Merge]
    digest: str


def adapt(
    choices: Sequence[AdapterChoice], architecture: str, file: GgufFile, seen: Mapping[str, TensorInfo]
) -> Adapted:
    """Reads adapters for a model; `seen`: its tensors as its architecture sees them (rows of the file's).

    ModelError for a file that is no LoRA adapter of this architecture, or does not fit the model's tensors; GgufError
    and SourceError when it cannot be read. Adapters of scale 0 are left out.
    """
    added: dict[str, list[LowRank]] = {}
    digest = blake2b(digest_size=6)
    for choice in choices:
        if not math.isfinite(choice.scale):
            raise ModelError(f"the scale of adapter {str(choice.path)!r} is {choice.scale}: it must be finite")
        if choice.scale:
            digest.update(f"{choice.scale!r}\n".encode())
            for name, pair in _read_adapter(choice, architecture, file.tensors, digest):
                added.setdefault(name, []).append(pair)
    merges = {}
    for name, info in seen.items():
        source, first = _row_in_file(info, file.tensors, added)
        if source in added:  # by where it lies: a part may have the name of the whole
            rows = slice(first, first + info.rows)
            whole = info.shape == file.tensors[source].shape
            if not whole and len(info.shape) != 2:
                raise ModelError(f"an adapter of {source!r} cannot be applied: its experts are split")
            merges[name] = Merge(info, tuple(each if whole else _of_rows(each, rows) for each in added[source]))
    tensors = {name: _kept(info) if name in merges else info for name, info in seen.items()}
    return Adapted(tensors, merges, digest.hexdigest() if added else "")


def merge_into(reader: TensorReader, merge: Merge, target: memoryview) -> None:
    """Reads a matrix and fills `target` with the bytes of its sum. ModelError for sums beyond its type."""
    info = merge.source
    values = np.frombuffer(dequantize(info.type, reader.read(info.name), info.n_values), dtype=np.float32)
    *experts, rows, cols = info.shape
    per_expert = values.reshape(math.prod(experts), rows, cols)
    kept = np.frombuffer(target, dtype=np.float32 if info.type is TensorType.F32 else np.float16)
    with np.errstate(over="ignore", invalid="ignore"):  # told of below
        step = max(1, _PIECE_VALUES // cols)
        for expert, matrix in enumerate(per_expert):
            for begin in range(0, rows, step):
                piece = matrix[begin : begin + step]
                for each in merge.added:
                    piece += np.float32(each.factor) * _product(each.b[expert, begin : begin + step], each.a[expert])
        kept[:] = values
    if not np.isfinite(kept).all():
        raise ModelError(f"tensor {info.name!r} with its adapters has values that are not finite: try a smaller scale")


def _product(b: NDArray[np.float32], a: NDArray[np.float32]) -> NDArray[np.float32]:
    """b (rows, rank) times a (rank, cols), summed in the order of ranks; no BLAS, which has orders of its own."""
    total: NDArray[np.float32] = b[:, 0, None] * a[0]
    for rank in range(1, len(a)):
        total += b[:, rank, None] * a[rank]
    return total


def _kept(info: TensorInfo) -> TensorInfo:
    type_ = TensorType.F32 if info.type is TensorType.F32 else TensorType.F16
    return replace(info, type=type_, n_bytes=type_.n_bytes(info.rows, info.cols))


def _row_in_file(info: TensorInfo, tensors: Mapping[str, TensorInfo], added: Mapping[str, object]) -> tuple[str, int]:
    """The file's tensor that has an adapter and these rows, and the first of them; the tensor itself where none has."""
    for name in added:
        whole = tensors[name]
        if whole.part == info.part and whole.offset <= info.offset and info.end <= whole.end:
            return name, (info.offset - whole.offset) // whole.type.row_bytes(whole.cols)
    return info.name, 0


def _of_rows(pair: LowRank, rows: slice) -> LowRank:
    return LowRank(pair.factor, pair.a, pair.b[:, rows])


# ---- an adapter's file


def _read_adapter(
    choice: AdapterChoice, architecture: str, tensors: Mapping[str, TensorInfo], digest: blake2b
) -> Iterator[tuple[str, LowRank]]:
    """The pairs of a file by the matrix they are for."""
    path = str(choice.path)
    with open_gguf(choice.path) as file:
        _check_kind(path, file, architecture)
        alpha = file.metadata.get_float("adapter.lora.alpha", 0.0)
        names = _pair_names(path, file.tensors)
        with file.open_reader() as reader:
            for name in names:
                if name not in tensors:
                    raise ModelError(
                        f"adapter {path!r} is for tensor {name!r}, which this model does not have: "
                        "it was made for another model"
                    )
                parts = [_values(reader, file.tensors[f"{name}{end}"], digest) for end in (_A, _B)]
                a, b = _oriented(path, name, tensors[name].shape, *parts)
                rank = a.shape[1]
                yield name, LowRank(choice.scale * alpha / rank if alpha else choice.scale, a, b)


def _check_kind(path: str, file: GgufFile, architecture: str) -> None:
    metadata = file.metadata
    kind = metadata.get_str("general.type", "model")
    if kind != "adapter":
        raise ModelError(f"{path!r} is a {kind}: a LoRA adapter is wanted (general.type 'adapter')")
    method = metadata.get_str("adapter.type", "unknown")
    if method != "lora":
        raise ModelError(f"adapter {path!r} is of type {method!r}: 'lora' is supported")
    found = metadata.get_str("general.architecture", "unknown")
    if found != architecture:
        raise ModelError(f"adapter {path!r} is for {found!r} models: this one is {architecture!r}")
    if metadata.get("adapter.alora.invocation_tokens") is not None:
        raise ModelError(f"adapter {path!r} is switched on by tokens of the prompt (aLoRA), which EMEL does not do")


def _pair_names(path: str, tensors: Mapping[str, TensorInfo]) -> list[str]:
    """The matrices a file has pairs for."""
    names = []
    for name in tensors:
        base, end = name[: -len(_A)], name[-len(_A) :]
        if end not in (_A, _B):
            raise ModelError(f"adapter {path!r} has tensor {name!r}: pairs of NAME{_A} and NAME{_B} are supported")
        other = _B if end == _A else _A
        if f"{base}{other}" not in tensors:
            raise ModelError(f"adapter {path!r} has {name!r} but no {base + other!r}")
        if end == _A:
            names.append(base)
    return names


def _values(reader: TensorReader, info: TensorInfo, digest: blake2b) -> NDArray[np.float32]:
    data = reader.read(info.name)
    digest.update(f"{info.name} {info.type.name} {info.shape}\n".encode())
    digest.update(data)
    return np.frombuffer(dequantize(info.type, data, info.n_values), dtype=np.float32).reshape(info.shape)


def _oriented(
    path: str, name: str, shape: tuple[int, ...], a: NDArray[np.float32], b: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """a (n_experts, rank, cols) and b (n_experts, rows, rank) for a matrix of this shape; ModelError for others."""
    seen = f"{a.shape} and {b.shape}"
    if name == _EMBEDDING:
        a, b = b.T, a
    if a.ndim == b.ndim == len(shape) >= 2:
        *experts, rows, cols = shape
        rank = a.shape[-2]
        if a.shape == (*experts, rank, cols) and b.shape == (*experts, rows, rank):
            n = math.prod(experts)
            return a.reshape(n, rank, cols), b.reshape(n, rows, rank)
    raise ModelError(
        f"adapter {path!r} has shapes {seen} for tensor {name!r}, which is {shape}: it was made for another model"
    )
