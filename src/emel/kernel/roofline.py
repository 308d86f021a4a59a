"""The most this machine can do: multiply-adds in registers, reading from memory. Kernels are judged against these."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from emel._native import LIBRARY, NativeError, check
from emel._native import abi as _abi

if TYPE_CHECKING:
    from emel.kernel.buffers import Memory
    from emel.kernel.pool import LanePool

Roof = _abi.Roof
_UNSUPPORTED = 3


def measure_roof(
    pool: LanePool, isa: int, roof: Roof, *, seconds: float = 0.2, memory: Memory | None = None
) -> float | None:
    """Multiply-adds or bytes a second that all lanes of the pool reach together with a route's instructions.

    READ overwrites `memory`, which should be far larger than the caches. None where the route has no such peak: the
    scalar one has no multiply-add peaks. NativeError for seconds or memory out of range.
    """
    _abi.declare(LIBRARY, _abi.ROOFLINE)
    address, n_bytes = (memory.address, memory.n_bytes) if memory is not None else (None, 0)
    result = ctypes.c_double()
    try:
        check(LIBRARY.emel_roofline(pool.handle, isa, roof, address, n_bytes, seconds, ctypes.byref(result)))
    except NativeError as error:
        if error.status == _UNSUPPORTED and roof is not Roof.READ:
            return None
        raise
    return result.value
