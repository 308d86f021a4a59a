"""The memory of a session: of the kind its model needs, and of a size that fits what is asked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from emel.graph.capacity import Capacity
from emel.kernel.host_memory import read_group_limit
from emel.kernel.sizes import KV_TYPES
from emel.memory.hybrid import HybridCache
from emel.memory.kv import KvCache
from emel.memory.recurrent import RecurrentSlots
from emel.memory.sequences import blocks_for
from emel.memory.storage import KvGeometry

if TYPE_CHECKING:
    from emel.graph.batch import KvBinding, StateBinding
    from emel.kernel.numerics import Activations
    from emel.model.registry import Parameters
    from emel.tensor.types import TensorType

USUAL_TOKENS = 1024
"""What a lane is expected to use of its context; more makes lanes compete for blocks."""
CHECKPOINTS_PER_LANE = 4
_SHARE_OF_MACHINE = 4  # the blocks take at most a quarter of its memory, but never less than one full sequence


def open_memory(
    parameters: Parameters,
    *,
    n_ctx: int,
    n_rows: int,
    prefix_bytes: int | None = None,
    kv_type: TensorType = KV_TYPES[0],
    n_blocks: int | None = None,
) -> KvCache | HybridCache:
    """Blocks for `n_rows` sequences that compete for them, with recurrent states if the model has any.

    `n_blocks` None: as many as `n_blocks_for` finds.

    ValueError for sizes the native library cannot hold; MemoryError.
    """
    kv = KvCache(
        n_kv_layers=parameters.n_kv_layers,
        heads=parameters.heads,
        n_ctx=n_ctx,
        max_sequences=n_rows,
        n_blocks=n_blocks_for(parameters, n_ctx, n_rows, kv_type) if n_blocks is None else n_blocks,
        prefix_bytes=prefix_bytes,
        kv_type=kv_type,
    )
    if parameters.state is None:
        return kv
    try:
        return HybridCache(kv, RecurrentSlots(n_rows * (1 + CHECKPOINTS_PER_LANE), parameters.state))
    except BaseException:
        kv.close()
        raise


def n_blocks_for(parameters: Parameters, n_ctx: int, n_rows: int, kv_type: TensorType = KV_TYPES[0]) -> int:
    """Blocks for one sequence of full length and `n_rows` - 1 of usual length, within a share of the machine's memory.

    In a control group with a limit, what that allows is the machine's memory.

    A prefix that is kept, and a sequence longer than usual, take what others leave; when they do not leave enough, the
    last one that came waits (emel.text.wavefront).
    """
    full, usual = blocks_for(n_ctx), blocks_for(min(n_ctx, USUAL_TOKENS))
    geometry = KvGeometry(parameters.n_kv_layers, parameters.heads.n_kv_heads, parameters.heads.head_dim, kv_type)
    n_affordable = machine_bytes() // _SHARE_OF_MACHINE // geometry.bytes_per_block
    return max(full + 1, min(full + (n_rows - 1) * usual, n_affordable))


def machine_bytes() -> int:
    """Bytes of memory the machine has, or this process's control groups allow; 2**63 - 1 where neither says."""
    limit = read_group_limit()
    most = 2**63 - 1 if limit is None else limit
    try:
        n_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return most
    return min(n_bytes, most) if n_bytes > 0 else most


def bindings(memory: KvCache | HybridCache) -> tuple[KvBinding, StateBinding | None]:
    """What batches of a session point at."""
    if isinstance(memory, HybridCache):
        return memory.kv.binding, memory.state_binding
    return memory.binding, None


def capacity_for(
    memory: KvCache | HybridCache, *, max_tokens: int, max_outputs: int, n_rows: int, activations: Activations
) -> Capacity:
    """How large the plan of a session is."""
    kv = memory.kv if isinstance(memory, HybridCache) else memory
    return Capacity(
        max_tokens,
        max_outputs,
        n_rows,
        kv.n_blocks,
        n_slots=memory.slots.n_slots if isinstance(memory, HybridCache) else 0,
        sequence_blocks=min(kv.stride, kv.n_blocks),
        kv_type=kv.geometry.kv_type,
        activations=activations,
    )
