"""What a model is loaded with besides its path: the keywords of `emel.load`, checked before anything of it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.engine.arguments import (
    checked_chat_template,
    checked_kv_type,
    checked_overrides,
    checked_speculation,
    checked_whole,
)
from emel.errors import RequestError
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from emel.engine.adapters import Lora
    from emel.engine.budget import Grant
    from emel.gguf import Scalar
    from emel.tensor.types import TensorType

DEFAULT_CONTEXT = 4096
"""Tokens of context when none is asked for and the model has as many."""
DEFAULT_LANES = 8
MAX_LANES = 256
DEFAULT_SPECULATION = "lookup"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """The fields are explained by `emel.load`. RequestError for a value outside its range.

    What only the parts below can judge (threads, isa, activations, memory, adapters) is checked where it is used.
    """

    n_ctx: int | None = None
    n_threads: int | None = None
    isa: str | None = None
    activations: str | None = None
    n_lanes: int = DEFAULT_LANES
    prefix_bytes: int | None = None
    overrides: Mapping[str, Scalar] | None = None
    kv_type: str | None = None
    memory: int | str | Grant | None = None
    speculation: str | None = DEFAULT_SPECULATION
    draft: str | os.PathLike[str] | None = None
    lora: Lora = ()
    chat_template: str | None = None

    def __post_init__(self) -> None:
        if self.n_ctx is not None and checked_whole(self.n_ctx, "n_ctx") < 0:
            raise RequestError(f"n_ctx is {self.n_ctx}: it must be 0 (all the model has) or more")
        if not 1 <= checked_whole(self.n_lanes, "n_lanes") <= MAX_LANES:
            raise RequestError(f"n_lanes is {self.n_lanes}: 1 to {MAX_LANES} requests can run at a time")
        if self.prefix_bytes is not None and checked_whole(self.prefix_bytes, "prefix_bytes") < 0:
            raise RequestError(f"prefix_bytes is {self.prefix_bytes}: it must be 0 (keep no prefixes) or more")
        checked_overrides(self.overrides)
        checked_kv_type(self.kv_type)
        checked_speculation(self.speculation)
        checked_chat_template(self.chat_template)

    @property
    def n_rows(self) -> int:
        """Sequences of a step: one for each lane, and one for what is computed between two steps."""
        return self.n_lanes + 1

    @property
    def cache_type(self) -> TensorType:
        """What keys and values are kept as."""
        return checked_kv_type(self.kv_type)
