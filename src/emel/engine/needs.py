"""What a model takes of memory within a grant, before it is loaded: nothing of its weights is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    from emel.engine.budget import Grant
    from emel.engine.options import LoadOptions


def needed_bytes(path: str | os.PathLike[str], grant: Grant, options: LoadOptions) -> int:
    """Bytes that a model takes within a grant: fewer than the grant when all weights fit it.

    ModelLoadError when the grant is too small, with the smallest that works, and for what is no model; ModelReadError,
    RequestError as those of `load`.
    """
    from emel.engine.adapters import checked_adapters
    from emel.engine.budget import SessionBudget
    from emel.engine.failures import load_failures
    from emel.engine.session import LARGEST
    from emel.gguf import open_gguf
    from emel.model.loader import describe_adapted
    from emel.model.streamed import choose_residency

    drafted = None
    if options.draft is not None:
        from emel.engine.draft_share import share_for_draft

        drafted = share_for_draft(options.draft, grant, options)
        grant = drafted.rest
    budget = SessionBudget(grant, options.n_ctx, options.n_rows, options.cache_type, LARGEST, draft=drafted)
    adapters = checked_adapters(options.lora)
    with load_failures(), open_gguf(path, overrides=options.overrides) as file:
        description = describe_adapted(file, adapters)
        residency = choose_residency(description, budget.weights(description))
        n_drafted = 0 if drafted is None else drafted.n_bytes
        return n_drafted + budget.fixed_bytes + residency.n_bytes
