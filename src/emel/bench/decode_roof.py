"""What decoding is held to: a token needs every weight once, so reading them bounds how many there can be a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from pathlib import Path

MEGABYTES = 256  # read for the roof
SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class DecodeRoof:
    """`n_bytes` is what a token reads of the model's weights; the context it attends to comes on top."""

    n_bytes: int

    def measure(self, n_threads: int) -> float:
        """1e9 bytes a second that this many threads read."""
        return measure_reading(n_threads) / 1e9

    def share(self, tokens_per_second: float, roof: float) -> float:
        """The part of a roof that reading the weights at this rate takes."""
        return tokens_per_second * self.n_bytes / 1e9 / roof


def measure_reading(n_threads: int) -> float:
    """Bytes of memory a second that this many threads read together; EmelError for a route that does not run here."""
    from emel.bench.machine import open_route
    from emel.kernel.buffers import Memory
    from emel.kernel.pool import LanePool
    from emel.kernel.roofline import Roof, measure_roof

    memory = Memory(MEGABYTES << 20, is_huge=True)
    try:
        with LanePool(n_threads) as pool:
            rate = measure_roof(pool, open_route().isa, Roof.READ, seconds=SECONDS, memory=memory)
    finally:
        memory.close()
    assert rate is not None  # every route can read
    return rate


def decode_roof_of(model: Path) -> DecodeRoof | None:
    """The roof of a model, None where it is unknown: in a file of experts a token reads some of the weights only.

    None, too, for a file that cannot be read; what runs it says why.
    """
    from emel.gguf import GgufError, open_gguf
    from emel.model.estimate import decode_bytes

    try:
        with open_gguf(model) as file:
            n_bytes = decode_bytes(file.tensors)
    except (GgufError, OSError):
        return None
    return None if n_bytes is None else DecodeRoof(n_bytes)
