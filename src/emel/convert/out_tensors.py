"""A tensor of the file that is written, and what makes its values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from emel.tensor.types import TensorType

    Floats = NDArray[np.float32]
    Load = Callable[[], NDArray[Any]]


@dataclass(frozen=True, slots=True)
class OutTensor:
    """A tensor of the new file: its shape, and what loads its pieces, in order.

    `stored`: the type whose bytes (n_bytes,) uint8 the pieces already are; None: they are float32, and become what the
    file's mix makes of them.
    """

    name: str
    shape: tuple[int, ...]
    pieces: tuple[Load, ...]
    stored: TensorType | None = None


def changed(load: Load, change: Callable[[Any], Any]) -> Floats:
    """What `change` makes of the values, as float32 rows that lie one behind the other."""
    return np.ascontiguousarray(change(load()), dtype=np.float32)
