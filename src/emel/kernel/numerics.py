"""Which results a plan computes: the numerics version, and what activations are quantised to.

Two kinds of activations give different results by design (docs/decisions/0001-two-planes.md), each the same bits on
every CPU. They are chosen when a plan is made and named in whatever a result is compared by.
"""

from __future__ import annotations

from emel._native import LIBRARY
from emel._native.abi import Activations

__all__ = ["ACTIVATIONS", "DEFAULT_ACTIVATIONS", "Activations", "choose_activations", "numerics_version"]

ACTIVATIONS = {kind.name.lower(): kind for kind in Activations}
"""By name: int16 is near the exact answer; int8 multiplies up to twice as fast, 2 to 3 % away from it."""
DEFAULT_ACTIVATIONS = Activations.INT16


def choose_activations(requested: str | None = None) -> Activations:
    """The kind asked for, else int16. ValueError, naming those there are, for another name."""
    if requested is None:
        return DEFAULT_ACTIVATIONS
    if not isinstance(requested, str) or requested not in ACTIVATIONS:
        raise ValueError(f"there are no activations {requested!r:.60}: allowed are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[requested]


def numerics_version(activations: Activations = DEFAULT_ACTIVATIONS) -> str:
    """What results are compared by, "1" or "1-int8": equal versions give equal bits (docs/concepts/numerics.md)."""
    version = str(LIBRARY.emel_numerics_version())
    return version if activations is DEFAULT_ACTIVATIONS else f"{version}-{activations.name.lower()}"
