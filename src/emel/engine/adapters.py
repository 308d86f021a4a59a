"""LoRA adapters as callers name them: a path, or a path and how strongly it is applied."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from emel.errors import RequestError

if TYPE_CHECKING:
    from emel.model.adapters import AdapterChoice

    Lora = Sequence[str | os.PathLike[str] | tuple[str | os.PathLike[str], float]]


def checked_adapters(lora: object) -> list[AdapterChoice]:
    """The adapters of a call's `lora`, in its order; RequestError for anything but paths and (path, scale)."""
    if isinstance(lora, str | bytes | os.PathLike) or not isinstance(lora, Sequence):
        raise RequestError(f"lora is {lora!r}: it must be a list of paths, or of (path, scale)")
    if not lora:
        return []
    from emel.model.adapters import AdapterChoice

    choices = []
    for each in lora:
        match each:
            case str() | os.PathLike():
                choices.append(AdapterChoice(each))
            case (str() | os.PathLike() as path, float() | int() as scale) if not isinstance(scale, bool):
                choices.append(AdapterChoice(path, float(scale)))
            case _:
                raise RequestError(f"an adapter is {each!r}: it must be a path, or (path, scale)")
    return choices
