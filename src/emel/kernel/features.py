"""Which CPU route (instruction set) the kernels take: the best this machine runs, or the one that was asked for."""

from __future__ import annotations

import os

from emel._native import LIBRARY
from emel._native import abi as _abi
from emel.lazy_dataclasses import dataclass

ENVIRONMENT = "EMEL_ISA"


@dataclass(frozen=True, slots=True)
class Route:
    """A route by its id in the C ABI and its name, and why it was chosen."""

    isa: int
    name: str
    reason: str


def available_routes() -> dict[str, int]:
    """Name -> id of every route this build has and this machine runs, the best one last."""
    mask = LIBRARY.emel_isa_mask()
    return {route_name(isa): int(isa) for isa in _abi.Isa if mask >> isa & 1}


def route_name(isa: int) -> str:
    """The short name of a route of the C ABI; ValueError for an unknown id."""
    name = LIBRARY.emel_isa_name(isa)
    if name is None:
        raise ValueError(f"route {isa} is unknown: 0 to {max(_abi.Isa)} exist")
    return str(name.decode("ascii"))


def choose_route(requested: str | None = None) -> Route:
    """The route asked for, else the one EMEL_ISA names, else the best. Every route gives the same bits.

    ValueError, naming what is available, for a route that does not exist or does not run here.
    """
    routes = available_routes()
    if requested is not None and not isinstance(requested, str):
        raise ValueError(f"isa is {requested!r:.60}: it must be the name of a CPU route: {', '.join(routes)}")
    asker = f"the environment variable {ENVIRONMENT}"
    wanted = requested or os.environ.get(ENVIRONMENT)
    if not wanted:
        name, isa = list(routes.items())[-1]
        return Route(isa, name, "the best this machine runs")
    if wanted not in routes:
        known = {route_name(isa) for isa in _abi.Isa}
        fault = "this machine or build does not run it" if wanted in known else "there is no such route"
        told = (
            f"the CPU route {wanted!r:.60} is asked for" if requested else f"{asker} names the CPU route {wanted!r:.60}"
        )
        raise ValueError(f"{told}, but {fault}; available here: {', '.join(routes)}")
    return Route(routes[wanted], wanted, "it is asked for" if requested else f"{asker} names it")
