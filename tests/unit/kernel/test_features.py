from __future__ import annotations

from typing import Any

import pytest

from emel._native import LIBRARY, abi
from emel.kernel.features import available_routes, choose_route, route_name


def test_routes_always_hold_the_specification() -> None:
    routes = available_routes()
    assert next(iter(routes)) == "scalar"
    assert {1 << isa for isa in routes.values()} == {
        1 << bit for bit in range(32) if LIBRARY.emel_isa_mask() >> bit & 1
    }


def test_route_is_the_best_when_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EMEL_ISA", raising=False)
    route = choose_route()
    assert route.isa == max(available_routes().values())
    assert route.reason == "the best this machine runs"


def test_route_is_forced_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMEL_ISA", "scalar")
    route = choose_route()
    assert (route.isa, route.name) == (abi.Isa.SCALAR, "scalar")
    assert route.reason == "the environment variable EMEL_ISA names it"


def test_route_request_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMEL_ISA", "nonsense")
    assert choose_route("scalar").reason == "it is asked for"


def test_route_of_no_name_is_refused_with_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMEL_ISA", "sse9")
    with pytest.raises(
        ValueError, match="EMEL_ISA names the CPU route 'sse9', but there is no such route; available here: scalar"
    ):
        choose_route()


def test_route_this_machine_cannot_run_is_refused() -> None:
    absent = [route_name(isa) for isa in abi.Isa if route_name(isa) not in available_routes()]
    assert absent  # no machine runs both families
    told = f"{absent[0]!r} is asked for, but this machine or build does not run it; available here"
    with pytest.raises(ValueError, match=told):
        choose_route(absent[0])


def test_route_name_refuses_unknown_ids() -> None:
    with pytest.raises(ValueError, match="route 99 is unknown: 0 to 6 exist"):
        route_name(99)


@pytest.mark.parametrize("requested", [0, 5, [], ["scalar"], b"scalar"])
def test_route_that_is_no_name_is_refused(requested: Any) -> None:
    with pytest.raises(ValueError, match=r"isa is .*: it must be the name of a CPU route: scalar"):
        choose_route(requested)
