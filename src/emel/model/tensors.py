"""The tensors an architecture expects, and the check of a file against them."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

from emel.kernel.packing import check_packable
from emel.lazy_dataclasses import dataclass
from emel.model.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from emel.gguf import TensorInfo

_MOST_NAMED = 3


class Role(Enum):
    """How a tensor is kept."""

    MATRIX = "matrix"  # packed 16 rows wide
    VECTOR = "vector"  # plain float32
    PARAMETER = "parameter"  # read when the graph is built, not kept


@dataclass(frozen=True, slots=True)
class ExpectedTensor:
    """A tensor by name, with its shape in (rows, cols) order."""

    name: str
    shape: tuple[int, ...]
    is_required: bool = True
    role: Role = Role.MATRIX


def matrix(name: str, rows: int, cols: int, *, is_required: bool = True) -> ExpectedTensor:
    """A (rows, cols) matrix."""
    return ExpectedTensor(name, (rows, cols), is_required)


def vector(name: str, n: int, *, is_required: bool = True) -> ExpectedTensor:
    """A vector of n values."""
    return ExpectedTensor(name, (n,), is_required, Role.VECTOR)


def check_tensors(expected: Sequence[ExpectedTensor], found: Mapping[str, TensorInfo], architecture: str) -> None:
    """ModelError naming missing, surplus and misshapen tensors, and types EMEL cannot compute with."""
    missing = [f"{each.name!r} {each.shape}" for each in expected if each.is_required and each.name not in found]
    if missing:
        raise ModelError(f"the file lacks {_some(missing, 'tensor')} that a {architecture} model needs")
    by_name = {each.name: each for each in expected}
    surplus = [f"{name!r}" for name in found if name not in by_name]
    if surplus:
        raise ModelError(
            f"the file has {_some(surplus, 'tensor')} that EMEL does not know in a {architecture} model; "
            "ignoring them could give wrong answers"
        )
    for name, info in found.items():
        wanted = by_name[name]
        if info.cols != wanted.shape[-1] or _without_ones(info.shape) != _without_ones(wanted.shape):
            raise ModelError(f"tensor {name!r} has shape {info.shape}: the metadata asks for {wanted.shape}")
        try:
            check_packable(name, info.type)
        except ValueError as error:
            raise ModelError(str(error)) from None


def present(expected: Iterable[ExpectedTensor], found: Mapping[str, TensorInfo], role: Role) -> list[TensorInfo]:
    """The tensors of one role that the file has, in the order the architecture names them."""
    return [found[each.name] for each in expected if each.role is role and each.name in found]


def split_rows(info: TensorInfo, parts: Mapping[str, int]) -> list[TensorInfo]:
    """The row ranges of a matrix (or of a vector, with rows of one value) as tensors: name -> rows, from the first on.

    ModelError when the tensor has another number of rows than the parts together.
    """
    *outer, cols = info.shape if len(info.shape) > 1 else (*info.shape, 1)
    columns = info.shape[len(outer) :]
    n_rows = sum(parts.values())
    if outer != [n_rows]:
        raise ModelError(f"tensor {info.name!r} has shape {info.shape}: the metadata asks for {(n_rows, *columns)}")
    row_bytes = info.type.n_bytes(1, cols)
    tensors, offset = [], info.offset
    for name, rows in parts.items():
        tensors.append(replace(info, name=name, shape=(rows, *columns), offset=offset, n_bytes=rows * row_bytes))
        offset += rows * row_bytes
    return tensors


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Writers differ in whether they keep dimensions of one."""
    return tuple(size for size in shape if size != 1)


def _some(names: list[str], noun: str) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{noun}{'s' if len(names) > 1 else ''} {shown}{more}"
