"""What a draft model takes of a budget of memory, before it is loaded: the session it guesses for gets what is left.

Its weights stay in memory, all of them: a guess must cost less than what it saves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.engine.budget import Grant, SessionBudget, SessionSizes
from emel.engine.failures import load_failures
from emel.engine.options import DEFAULT_CONTEXT
from emel.errors import RequestError
from emel.gguf import open_gguf
from emel.kernel.sizes import KV_TYPES
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    import os

    from emel.engine.options import LoadOptions

DRAFT_SIZES = SessionSizes(DEFAULT_CONTEXT, 256, 1)
"""What a draft model has where no budget makes it smaller."""
_UNBOUNDED = 1 << 62


@dataclass(frozen=True, slots=True)
class DraftShare:
    """Bytes of a draft model with all it needs, the sizes they are for, and what is left of the grant."""

    n_bytes: int
    sizes: SessionSizes
    rest: Grant
    path: str | os.PathLike[str]
    options: LoadOptions

    def least_whole(self, n_rest: int) -> int:
        """The smallest budget, from this one up, that leaves so many bytes: of a larger one the draft model has more.

        Errors: as those of `share_for_draft`.
        """
        n_bytes = n_rest + self.n_bytes
        while (needed := n_rest + _taken(self.path, n_bytes, self.options)[0]) > n_bytes:
            n_bytes = needed
        return n_bytes


def share_for_draft(path: str | os.PathLike[str], grant: Grant, options: LoadOptions) -> DraftShare:
    """The share of a draft model for a session with these options.

    RequestError when it leaves nothing; ModelLoadError for what is no model, ModelReadError.
    """
    n_bytes, sizes = _taken(path, grant.whole, options)
    if n_bytes >= grant.n_bytes:
        raise RequestError(
            f"the draft model takes {n_bytes} of {grant.n_bytes} bytes of memory",
            hint="give more memory, or load without draft",
        )
    return DraftShare(n_bytes, sizes, Grant(grant.n_bytes - n_bytes, grant.whole - n_bytes), path, options)


def _taken(path: str | os.PathLike[str], whole: int, options: LoadOptions) -> tuple[int, SessionSizes]:
    """Bytes of a draft model within a budget, and the sizes they are for."""
    from emel.model.loader import check_description, describe_file
    from emel.model.residency import WeightBudget
    from emel.model.streamed import choose_residency

    budget = SessionBudget(Grant(_UNBOUNDED, whole), options.n_ctx, options.n_lanes, KV_TYPES[0], DRAFT_SIZES)
    with load_failures(), open_gguf(path) as file:
        description = describe_file(file)
        check_description(description)
        weights = WeightBudget(_UNBOUNDED, budget.weights(description).max_rows)
        return budget.fixed_bytes + choose_residency(description, weights).n_bytes, budget.sizes
