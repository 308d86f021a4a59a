"""What a model takes of memory within a grant, before it is loaded: nothing of its weights is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from emel.engine.adapters import Lora
    from emel.engine.budget import Grant
    from emel.gguf import Scalar


def needed_bytes(
    path: str | os.PathLike[str],
    grant: Grant,
    *,
    n_ctx: int | None,
    n_lanes: int,
    kv_type: str | None = None,
    overrides: Mapping[str, Scalar] | None = None,
    lora: Lora = (),
    draft: str | os.PathLike[str] | None = None,
) -> int:
    """Bytes that `Model(path, memory=grant)` takes: fewer than the grant when all weights fit it.

    ModelLoadError when the grant is too small, with the smallest that works, and for what is no model; ModelReadError,
    RequestError as those of `load`.
    """
    from emel.engine.adapters import checked_adapters
    from emel.engine.arguments import checked_kv_type
    from emel.engine.budget import SessionBudget
    from emel.engine.failures import load_failures
    from emel.engine.session import LARGEST
    from emel.gguf import open_gguf
    from emel.model.loader import describe_adapted
    from emel.model.streamed import choose_residency

    n_drafted = 0
    if draft is not None:
        from emel.engine.draft_share import share_for_draft

        drafted = share_for_draft(draft, grant, n_ctx, n_lanes)
        n_drafted, grant = drafted.n_bytes, drafted.rest
    budget = SessionBudget(grant, n_ctx, n_lanes + 1, checked_kv_type(kv_type), LARGEST)
    adapters = checked_adapters(lora)
    with load_failures(), open_gguf(path, overrides=overrides) as file:
        description = describe_adapted(file, adapters)
        residency = choose_residency(description, budget.weights(description))
        return n_drafted + budget.fixed_bytes + residency.n_bytes
