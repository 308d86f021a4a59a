"""The kernel routes this machine can run, by EMEL's names."""

from __future__ import annotations

from emel._native.library import LIBRARY


def available_isas() -> list[str]:
    """Names for `emel.load(isa=...)`, the scalar specification first."""
    mask: int = LIBRARY.emel_isa_mask()
    return [LIBRARY.emel_isa_name(route).decode() for route in range(mask.bit_length()) if mask >> route & 1]
