"""What callers hand to the API for the engine to call: listeners, and what makes constraints, checked beforehand.

The wave calls them in the midst of everybody's steps, where one that lacks a method could not be told from a defect.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from emel.engine.arguments import CONSTRAINTS
from emel.errors import RequestError
from emel.text.errors import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from emel.engine.request import Listener
    from emel.text.constraint import Constraint

_HEARS = ("on_chunk", "on_end", "on_failure")
_CONSTRAINS = ("is_over", "mask", "accept")


def checked_listeners(listeners: object) -> Sequence[Listener]:
    """Several listeners that have every method of one: a wave that finds one missing could not go on."""
    if isinstance(listeners, str | bytes) or not isinstance(listeners, Iterable):
        raise RequestError(f"the listeners are {shown(listeners)}: they must be a list, one for each answer")
    found = list(listeners)
    for each in found:
        missing = [name for name in _HEARS if not callable(getattr(each, name, None))]
        if missing:
            raise RequestError(
                f"the listener is {shown(each)}, which has no method {' and no '.join(missing)}",
                hint=f"a listener has {', '.join(_HEARS)} (emel.engine.request.Listener)",
            )
    return found


def checked_constraint_maker(maker: object) -> Callable[[], object] | None:
    """None, or something to call for the constraint of each answer."""
    if maker is not None and not callable(maker):
        raise RequestError(
            f"new_constraint is {shown(maker)}: it must be a function that makes the constraint of one answer",
            hint=f"{', '.join(CONSTRAINTS)} say what the answer must obey without one",
        )
    return maker


def checked_constraint(constraint: object) -> Constraint | None:
    """What new_constraint made: None, or what has all that the sampler asks of a constraint."""
    if constraint is None or all(hasattr(constraint, name) for name in _CONSTRAINS):
        return constraint  # type: ignore[return-value]
    raise RequestError(
        f"new_constraint made {shown(constraint)}: it must make None, or an object with {', '.join(_CONSTRAINS)}"
    )
