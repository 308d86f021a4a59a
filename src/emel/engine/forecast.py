"""What a budget of memory makes of a model, before it is loaded: what stays, what each token reads, how fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from emel.gguf import GgufFile
    from emel.model.residency import Residency


@dataclass(frozen=True, slots=True)
class Forecast:
    """Bytes of memory, of a session with a context of `n_ctx` tokens, and bytes of the file that each token reads."""

    budget_bytes: int
    n_ctx: int
    weights_bytes: int
    """Of weights in memory, with all that streaming the others takes."""
    streamed_bytes_per_token: int
    """0: everything stays in memory. Experts count as often as they are chosen when all are chosen alike."""
    read_bytes_per_second: float | None
    """Measured on this file, cold; None where it was not, or could not be."""

    @property
    def tokens_per_second_at_most(self) -> float | None:
        """What reading allows one sequence; None without a measurement, or where nothing is read."""
        if not self.streamed_bytes_per_token or self.read_bytes_per_second is None:
            return None
        return self.read_bytes_per_second / self.streamed_bytes_per_token


def forecast(file: GgufFile, memory: int | str, n_ctx: int | None = None, *, measure: bool = True) -> Forecast:
    """For a budget as `emel.load` takes it; reads the file for about a fifth of a second to measure.

    RequestError for what is no budget; ModelLoadError for what is no model, or when the budget is too small, with the
    smallest that works.
    """
    from emel.engine.budget import SessionBudget, granted
    from emel.engine.failures import load_failures
    from emel.engine.options import LoadOptions
    from emel.engine.session import LARGEST
    from emel.io.speed import measure_model
    from emel.model.loader import check_description, describe_file
    from emel.model.streamed import choose_residency

    options = LoadOptions(n_ctx=n_ctx)
    budget = SessionBudget(granted(memory), options.n_ctx, options.n_rows, options.cache_type, LARGEST)
    with load_failures():
        description = describe_file(file)
        check_description(description)
        residency = choose_residency(description, budget.weights(description))
    n_bytes = streamed_bytes(residency)
    return Forecast(
        budget_bytes=budget.n_bytes,
        n_ctx=budget.sizes.n_ctx,
        weights_bytes=residency.n_bytes,
        streamed_bytes_per_token=n_bytes,
        read_bytes_per_second=measure_model(file.parts).best if measure and n_bytes else None,
    )


def least_memory(file: GgufFile, n_ctx: int | None = None) -> int:
    """The smallest budget that `emel.load` takes for a context of `n_ctx` tokens (None: as small as it makes it).

    ModelLoadError for what is no model.
    """
    from emel.engine.budget import Grant, SessionBudget
    from emel.engine.failures import load_failures
    from emel.engine.options import LoadOptions
    from emel.engine.session import LARGEST
    from emel.model.loader import check_description, describe_file

    options = LoadOptions(n_ctx=n_ctx)
    budget = SessionBudget(Grant(1, 1), options.n_ctx, options.n_rows, options.cache_type, LARGEST)
    with load_failures():
        description = describe_file(file)
        check_description(description)
        return budget.least_bytes(description)


def streamed_bytes(residency: Residency) -> int:
    """Bytes of the file that a token of one sequence reads, its row of the embedding aside.

    Of its experts it finds as large a share in memory as there is room for; fewer are read where some are chosen more.
    """
    total = sum(group.n_experts * group.expert_bytes for group in residency.experts)
    missing = 1 - residency.experts_bytes / total if total else 0.0
    chosen = sum(group.n_used * group.read_bytes for group in residency.experts)
    return residency.layout.streamed_file_bytes + round(missing * chosen)
