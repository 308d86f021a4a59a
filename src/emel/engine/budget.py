"""What a session does with a budget of memory: context, batch and logits first, the weights get what is left.

What it counts is what EMEL allocates for a model; the interpreter and its libraries (about 40 MB) come on top.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from emel.engine.amounts import parse_memory
from emel.engine.memory import CHECKPOINTS_PER_LANE, n_blocks_for
from emel.graph.assembler import assemble
from emel.graph.capacity import Capacity
from emel.kernel.sizes import KV_BLOCK
from emel.lazy_dataclasses import dataclass
from emel.memory.sequences import blocks_for
from emel.memory.storage import KvGeometry
from emel.model.errors import ModelError

if TYPE_CHECKING:
    from emel.engine.draft_share import DraftShare
    from emel.model.loader import ModelDescription
    from emel.model.residency import WeightBudget
    from emel.tensor.types import TensorType

_LEAST_CHUNK = 32
_LEAST_CONTEXT = 256
_USABLE_CONTEXT = 1024  # a question and its answer: less only where an eighth of the budget has no room for it


@dataclass(frozen=True, slots=True)
class _Shares:
    """The parts of a budget, as divisors, that may be taken before what takes them is made smaller."""

    context: int  # of one sequence, where none was asked for
    blocks: int  # of all sequences, beyond a whole one
    step: int
    logits: int


_USUAL_SHARES = _Shares(8, 8, 16, 64)
# What these take of weights that do not fit is read again with each token.
_STREAMING_SHARES = _Shares(16, 32, 32, 128)


@dataclass(frozen=True, slots=True)
class Grant:
    """Bytes a session may take out of a budget that several share: of the `whole`, or of what others left of it.

    Its context and steps are those it would have with all of the budget, whatever others took; only its weights get
    less.
    """

    n_bytes: int
    whole: int


def granted(memory: int | str | Grant) -> Grant:
    """A budget as a grant of all of it; RequestError for what is none."""
    if isinstance(memory, Grant):
        return memory
    n_bytes = parse_memory(memory)
    return Grant(n_bytes, n_bytes)


@dataclass(frozen=True, slots=True)
class SessionSizes:
    """Tokens of context (unless others are asked for) and of a step, rows of logits, blocks (None: by the machine)."""

    n_ctx: int
    chunk: int
    n_outputs: int
    n_blocks: int | None = None


class SessionBudget:
    """Splits a grant for a session of `n_rows` sequences; `sizes` and `fixed_bytes`, what they take, are those of the
    last model that was described.

    `n_ctx` None: the context is made as small as the budget asks for, down to 256 tokens. `largest`: what is never
    exceeded. `draft`: the draft model whose share of a larger budget left this grant; errors tell of both together.
    """

    def __init__(
        self,
        grant: Grant,
        n_ctx: int | None,
        n_rows: int,
        kv_type: TensorType,
        largest: SessionSizes,
        *,
        draft: DraftShare | None = None,
    ) -> None:
        self.n_bytes = grant.n_bytes
        self.sizes = largest
        self.fixed_bytes = 0
        self._whole = grant.whole
        self._n_ctx, self._n_rows, self._kv_type, self._largest = n_ctx, n_rows, kv_type, largest
        self._draft = draft

    def weights(self, description: ModelDescription) -> WeightBudget:
        """What is left for the weights; ModelError when it is too little, with the smallest budget that works."""
        from emel.model.residency import WeightBudget
        from emel.model.streamed import all_weight_bytes, least_weight_bytes

        sizes, fixed = self._shared_out(description, _USUAL_SHARES)
        if fixed + all_weight_bytes(description) > self._whole:
            sizes, fixed = self._shared_out(description, _STREAMING_SHARES)
        least = fixed + least_weight_bytes(description, self._max_tokens(sizes))
        if least > self._whole:
            sizes, fixed = self._smallest(description)
            least = fixed + least_weight_bytes(description, self._max_tokens(sizes))
        if least > self.n_bytes:
            raise self._too_few(least, sizes.n_ctx)
        self.sizes, self.fixed_bytes = sizes, fixed
        return WeightBudget(self.n_bytes - fixed, self._max_tokens(sizes))

    def _too_few(self, least: int, n_ctx: int) -> ModelError:
        n_bytes, beside = self.n_bytes, ""
        if self._draft is not None:
            n_bytes, least, beside = n_bytes + self._draft.n_bytes, self._draft.least_whole(least), " and a draft model"
        advice = ": give more, or ask for a smaller one" if self._n_ctx is not None else ""
        return ModelError(
            f"{n_bytes} bytes of memory are too few: {least} are the least with a context of {n_ctx} tokens"
            f"{beside}{advice}"
        )

    def least_bytes(self, description: ModelDescription) -> int:
        """The smallest budget that works."""
        from emel.model.streamed import least_weight_bytes

        sizes, fixed = self._smallest(description)
        return fixed + least_weight_bytes(description, self._max_tokens(sizes))

    def _max_tokens(self, sizes: SessionSizes) -> int:
        return max(sizes.chunk, self._n_rows)

    def _smallest(self, description: ModelDescription) -> tuple[SessionSizes, int]:
        """The smallest session, and what it takes."""
        n_ctx = self._context(description.parameters.n_ctx, 0)
        sizes = SessionSizes(n_ctx, min(self._largest.chunk, n_ctx, _LEAST_CHUNK), 0, blocks_for(n_ctx) + 1)
        return sizes, self._fixed_bytes(description, sizes)

    def _shared_out(self, description: ModelDescription, shares: _Shares) -> tuple[SessionSizes, int]:
        """A session that takes no more than its shares of the budget, where it can, and what it takes."""
        parameters, block_bytes = description.parameters, _block_bytes(description, self._kv_type)
        affordable, most, extra = (
            self._whole // share // block_bytes for share in (shares.context, _USUAL_SHARES.context, shares.blocks)
        )
        affordable = max(affordable, min(blocks_for(_USABLE_CONTEXT) + 1, most))
        n_ctx = self._context(parameters.n_ctx, affordable * KV_BLOCK)
        usual = n_blocks_for(parameters, n_ctx, self._n_rows, self._kv_type)
        n_blocks = max(blocks_for(n_ctx) + 1, min(usual, extra))
        n_outputs = min(self._largest.n_outputs, self._whole // shares.logits // (4 * parameters.n_vocab))
        chunk = min(self._largest.chunk, n_ctx)
        sizes = SessionSizes(n_ctx, chunk, n_outputs, n_blocks)
        while chunk > _LEAST_CHUNK and self._step_bytes(description, sizes) > self._whole // shares.step:
            chunk = max(chunk // 2, _LEAST_CHUNK)
            sizes = replace(sizes, chunk=chunk)
        return sizes, self._fixed_bytes(description, sizes)

    def _fixed_bytes(self, description: ModelDescription, sizes: SessionSizes) -> int:
        """Bytes of everything but the weights."""
        assert sizes.n_blocks is not None
        return sizes.n_blocks * _block_bytes(description, self._kv_type) + self._step_bytes(description, sizes)

    def _context(self, trained: int, affordable: int) -> int:
        if self._n_ctx is not None:
            return self._n_ctx or trained
        return min(trained, self._largest.n_ctx, max(affordable - KV_BLOCK, _LEAST_CONTEXT))

    def _step_bytes(self, description: ModelDescription, sizes: SessionSizes) -> int:
        """Bytes of arena, logits and recurrent states."""
        parameters = description.parameters
        max_tokens = self._max_tokens(sizes)
        max_outputs = min(max(sizes.n_outputs, self._n_rows), max_tokens)
        capacity = Capacity(max_tokens, max_outputs, self._n_rows, sizes.n_blocks or 1, self._n_rows)
        assembly = assemble(lambda: description.architecture.build(parameters, description.tensors), capacity)
        state = 0 if parameters.state is None else parameters.state.n_bytes * self._n_rows * (1 + CHECKPOINTS_PER_LANE)
        return assembly.placement.n_bytes + max_outputs * parameters.n_vocab * 4 + state


def _block_bytes(description: ModelDescription, kv_type: TensorType) -> int:
    heads = description.parameters.heads
    return KvGeometry(description.parameters.n_kv_layers, heads.n_kv_heads, heads.head_dim, kv_type).bytes_per_block
