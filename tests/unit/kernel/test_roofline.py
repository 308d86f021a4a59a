from __future__ import annotations

import ctypes

import pytest

from emel._native import LIBRARY, NativeError, abi
from emel.kernel.buffers import Memory
from emel.kernel.features import available_routes
from emel.kernel.pool import LanePool
from emel.kernel.roofline import Roof, measure_roof

SECONDS = 0.002
ROUTES = available_routes()


@pytest.mark.parametrize("roof", [Roof.INT8, Roof.FMA])
@pytest.mark.parametrize("route", ROUTES)
def test_multiply_add_roof_is_plausible_and_absent_for_the_specification(route: str, roof: Roof) -> None:
    with LanePool(2) as pool:
        rate = measure_roof(pool, ROUTES[route], roof, seconds=SECONDS)
    if route == "scalar":
        assert rate is None
    else:
        assert rate is not None
        assert 1e8 < rate < 1e13


@pytest.mark.parametrize("route", ROUTES)
def test_read_roof_is_plausible_and_needs_no_whole_blocks_for_each_lane(route: str) -> None:
    memory = Memory(3 * 512 + 100)
    with LanePool(3) as pool:
        rate = measure_roof(pool, ROUTES[route], Roof.READ, seconds=SECONDS, memory=memory)
    assert rate is not None
    assert 1e7 < rate < 1e13
    assert bytes(memory.view()) == b"\1" * (3 * 512) + bytes(100)  # what it overwrote, and what it left alone
    memory.close()


@pytest.mark.parametrize("seconds", [0.0, -1.0, 61.0, float("nan"), float("inf")])
def test_roof_refuses_seconds_out_of_range(seconds: float) -> None:
    with LanePool(1) as pool, pytest.raises(NativeError, match="seconds; allowed are more than 0 and at most 60"):
        measure_roof(pool, 0, Roof.READ, seconds=seconds, memory=Memory(512))


def test_read_roof_refuses_missing_and_small_memory() -> None:
    text = "reading needs at least 1024 bytes of memory aligned to 64, got"
    with LanePool(2) as pool:
        with pytest.raises(NativeError, match=f"{text} 0"):
            measure_roof(pool, 0, Roof.READ, seconds=SECONDS)
        with pytest.raises(NativeError, match=f"{text} 1000"):
            measure_roof(pool, 0, Roof.READ, seconds=SECONDS, memory=Memory(1000))


def test_roof_refuses_unknown_routes_and_kinds() -> None:
    result = ctypes.c_double()
    with LanePool(1) as pool:
        with pytest.raises(NativeError, match="route 99 is not built or does not run here"):
            measure_roof(pool, 99, Roof.READ, seconds=SECONDS, memory=Memory(512))
        assert LIBRARY.emel_roofline(pool.handle, 0, 3, None, 0, SECONDS, ctypes.byref(result))
        assert LIBRARY.emel_last_error() == b"roofline: kind 3; allowed are 0 to 2"
        assert LIBRARY.emel_roofline(pool.handle, 0, abi.Roof.READ, None, 0, SECONDS, None)
        assert LIBRARY.emel_last_error() == b"roofline: pool or result is NULL"
