"""How the rows of a text's tokens become one, its embedding (https://arxiv.org/abs/1908.10084)."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from emel.model.parameters import non_negative_int

if TYPE_CHECKING:
    from emel.gguf import Metadata


class Pooling(Enum):
    """Which rows count."""

    MEAN = "mean"
    CLS = "cls"  # the first token's
    LAST = "last"


# https://github.com/ggml-org/llama.cpp/blob/master/gguf-py/gguf/constants.py, PoolingType; 0 leaves it to the user
_POOLINGS = {1: Pooling.MEAN, 2: Pooling.CLS, 3: Pooling.LAST}


def pooling_key(name: str) -> str:
    """Where files of architecture `name` say it."""
    return f"{name}.pooling_type"


def read_pooling(metadata: Metadata, name: str) -> Pooling | None:
    """The file's; None where it says nothing, or something else than to make one row of all."""
    return _POOLINGS.get(non_negative_int(metadata, pooling_key(name), 0))
