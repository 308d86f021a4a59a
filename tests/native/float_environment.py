"""The calling thread's floating-point mode, through the C library: to see that nobody else's mode reaches our bits."""

from __future__ import annotations

import ctypes
import ctypes.util
import platform
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Layout(NamedTuple):
    """Where a fenv_t keeps its control word, and what changes rounding and subnormals in it."""

    offset: int
    hostile: int  # round down, flush subnormal results and operands to zero
    mask: int


# System V psABI for x86-64: 28 bytes of x87 state, then MXCSR; AAPCS64: FPCR first.
LAYOUTS = {"x86_64": Layout(28, 0x2000 | 0x8000 | 0x0040, 0xFFC0), "aarch64": Layout(0, 2 << 22 | 1 << 24, 7 << 22)}
LAYOUT = LAYOUTS.get(platform.machine())

_libm = ctypes.CDLL(ctypes.util.find_library("m"))


def read_environment() -> ctypes.Array[ctypes.c_uint8]:
    """The fenv_t of this thread."""
    environment = (ctypes.c_uint8 * 64)()
    assert _libm.fegetenv(environment) == 0
    return environment


def control_word() -> int:
    """The control bits of this thread."""
    assert LAYOUT is not None
    return ctypes.c_uint32.from_buffer(read_environment(), LAYOUT.offset).value & LAYOUT.mask


@contextmanager
def hostile_environment() -> Iterator[int]:
    """Rounds down and flushes subnormals in this thread; gives the control bits that are in force."""
    assert LAYOUT is not None
    saved, changed = read_environment(), read_environment()
    word = ctypes.c_uint32.from_buffer(changed, LAYOUT.offset)
    word.value |= LAYOUT.hostile
    _libm.fesetenv(changed)
    try:
        yield word.value & LAYOUT.mask
    finally:
        _libm.fesetenv(saved)
