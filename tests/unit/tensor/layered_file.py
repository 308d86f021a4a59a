"""A file of small matrices in layers, a window over it, and faults in what it calls."""

from __future__ import annotations

import ctypes
import errno
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from emel.io.lanes import LaneCalls
from emel.io.parts import FilePart
from emel.io.platform import SYSTEM, Platform
from emel.kernel.buffers import Memory
from emel.kernel.packing import Matrix, pack
from emel.kernel.pool import LanePool
from emel.kernel.sizes import packed_bytes
from emel.sm.external import ExternalCompletionPolicy
from emel.tensor.types import TensorType
from emel.tensor.window import Acquire, Bind, Unbind, WindowContext, WindowMachine
from emel.tensor.window_layout import Extent, Unit, WindowLayout, lay_out, places, unit_bytes

if TYPE_CHECKING:
    from pathlib import Path

Q8 = TensorType.Q8_0
HEAD = 100  # bytes in front of the first matrix
GAP = 36  # between matrices


@dataclass
class LayeredFile:
    """`n_layers` layers of a (48, 64) and a (20, 96) matrix; `units` say where, `packed` what a slot must hold."""

    path: Path
    n_layers: int = 6
    units: list[Unit] = field(default_factory=list)
    packed: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(0)
        content = bytearray(HEAD)
        matrices = []
        for layer in range(self.n_layers):
            extents = []
            for name, rows, cols in ((f"{layer}.a", 48, 64), (f"{layer}.b", 20, 96)):
                n_bytes = Q8.n_bytes(rows, cols)
                data = rng.integers(0, 256, n_bytes, dtype=np.uint8).tobytes()
                extents.append(Extent(name, len(content), n_bytes, rows, cols, Q8, packed_bytes(Q8, rows, cols)))
                matrices.append(Matrix(name, Q8, rows, cols, data))
                content += data + bytes(GAP)
            self.units.append(tuple(extents))
        self.path.write_bytes(content)
        with LanePool(1) as pool:
            weights = pack(pool, matrices)
            for matrix in matrices:
                location = weights.locate(matrix.name)
                self.packed[matrix.name] = ctypes.string_at(location.address, location.n_bytes)
            weights.close()

    @property
    def parts(self) -> tuple[FilePart, ...]:
        return (FilePart(str(self.path), self.n_bytes),)

    @property
    def n_bytes(self) -> int:
        return self.path.stat().st_size

    def layout(self, n_slots: int = 2, n_resident: int = 0) -> WindowLayout:
        one = unit_bytes(self.units[0])
        slot = -(-one // 4096) * 4096
        return lay_out(self.units, n_slots * slot + n_resident * one, n_slots)


class Ring:
    """A window over a file with memory of its own; a context manager that unbinds."""

    def __init__(
        self,
        file: LayeredFile,
        layout: WindowLayout,
        *,
        calls: LaneCalls | None = None,
        platform: Platform = SYSTEM,
        is_direct: bool = False,
    ) -> None:
        self.file, self.layout = file, layout
        self.arena = Memory(max(layout.arena_bytes, 1))
        self.policy = ExternalCompletionPolicy()
        self.machine = WindowMachine(WindowContext(self.policy, platform, calls or LaneCalls()), self.policy)
        self.bind = Bind(file.parts, layout, self.arena.address, self.arena.n_bytes, 1 << 16, is_direct)

    @property
    def context(self) -> WindowContext:
        return self.machine.context

    def acquire(self, unit: int) -> Exception | None:
        """What the window reports; the content of the slot is checked when it is no error."""
        assert self.machine.dispatch(Acquire(unit))
        if self.context.error is None:
            self.check(unit)
        return self.context.error

    def check(self, unit: int) -> None:
        assert self.context.ring.published is not None
        begin = self.arena.address + self.context.ring.published * self.layout.slot_bytes
        for place in places(self.layout.units[unit]):
            assert ctypes.string_at(begin + place.offset, place.n_bytes) == self.file.packed[place.name]

    def __enter__(self) -> Ring:
        assert self.machine.dispatch(self.bind)
        assert self.context.error is None
        return self

    def __exit__(self, *_error: object) -> None:
        if self.context.bound is not None:
            self.machine.dispatch(Unbind())
        assert self.context.reads is None
        self.arena.close()


class FaultyReads:
    """Reads of a file; number `fail_at` (from 1) fails, and `n_failures - 1` after it."""

    def __init__(self, path: Path, fail_at: int = 0, n_failures: int = 1, code: int = errno.EIO) -> None:
        self.content = path.read_bytes()
        self.fail_at, self.n_failures, self.code = fail_at, n_failures, code
        self.n_calls = 0

    def read(self, _descriptor: int, address: int, n_bytes: int, offset: int) -> int:
        self.n_calls += 1
        if self.fail_at and self.fail_at <= self.n_calls < self.fail_at + self.n_failures:
            return -self.code
        data = self.content[offset : offset + n_bytes]
        ctypes.memmove(address, data, len(data))
        return len(data)

    @property
    def calls(self) -> LaneCalls:
        return LaneCalls(read=self.read)
