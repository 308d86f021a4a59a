"""Sizes the native library dictates, in bytes; 0 stands for an overflow there and is an error here."""

from __future__ import annotations

import ctypes

from emel._native import LIBRARY, check
from emel._native import abi as _abi  # declares the prototypes
from emel.tensor.types import TensorType

KV_BLOCK = _abi.KV_BLOCK
ALIGNMENT = _abi.ALIGNMENT
ROW_GROUP = 16
"""Rows of a matrix that are packed together (kRowsPerGroup of the kernels): parts of it begin at a multiple."""
KV_PART = 32
"""Numbers of a head that share a scale in a KV cache of Q8_0."""
KV_TYPES = (TensorType.F16, TensorType.F32, TensorType.Q8_0)
"""What the numbers of a KV cache can be; the first is the default."""


def aligned(n_bytes: int) -> int:
    """`n_bytes` rounded up to the alignment of arena offsets and packed matrices."""
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT


def packed_bytes(type: TensorType, rows: int, cols: int) -> int:  # noqa: A002 - the field's own name
    """Bytes of a (rows, cols) matrix in the packed 16-row layout; NativeError for a type or shape it cannot hold."""
    n_bytes = ctypes.c_uint64()
    check(LIBRARY.emel_pack_size(int(type), rows, cols, ctypes.byref(n_bytes)))
    return n_bytes.value


def quantized_bytes(width: int, activations: _abi.Activations) -> int:
    """Bytes of one token's quantised activation of `width` values."""
    n_bytes = LIBRARY.emel_quantized_bytes(width, activations)
    return _positive(n_bytes, f"a quantised activation of {width} values as {activations.name.lower()}")


def kv_bytes(
    n_kv_layers: int, n_blocks: int, n_kv_heads: int, head_dim: int, kv_type: TensorType = TensorType.F16
) -> int:
    """Bytes of a KV cache of `n_blocks` blocks of 16 tokens, its numbers of one of KV_TYPES."""
    what = f"a KV cache of {n_kv_layers} layers, {n_blocks} blocks, {n_kv_heads} heads of {head_dim}, {kv_type.name}"
    return _positive(LIBRARY.emel_kv_bytes(n_kv_layers, n_blocks, n_kv_heads, head_dim, kv_type), what)


def state_bytes(n_state_layers: int, state_width: int, n_slots: int) -> int:
    """Bytes of a recurrent state (n_slots, n_state_layers, state_width) float32."""
    what = f"a recurrent state of {n_state_layers} layers, {state_width} values, {n_slots} slots"
    return _positive(LIBRARY.emel_state_bytes(n_state_layers, state_width, n_slots), what)


def routing_bytes(n_rows: int, k: int, n_experts: int) -> int:
    """Bytes of the routing of `n_rows` rows to `k` of `n_experts` each."""
    what = f"a routing of {n_rows} rows to {k} of {n_experts} experts"
    return _positive(LIBRARY.emel_routing_bytes(n_rows, k, n_experts), what)


def attention_scratch_bytes(max_tokens: int, n_heads: int, n_kv_heads: int, head_dim: int, n_blocks: int) -> int:
    """Bytes of scratch one ATTENTION needs for batches of up to `max_tokens` tokens, sequences of `n_blocks` blocks."""
    what = f"attention scratch for {max_tokens} tokens, {n_heads}/{n_kv_heads} heads of {head_dim}, {n_blocks} blocks"
    return _positive(LIBRARY.emel_attention_scratch(max_tokens, n_heads, n_kv_heads, head_dim, n_blocks), what)


def _positive(n_bytes: int, what: str) -> int:
    if n_bytes <= 0:
        raise ValueError(f"the native library has no size for {what}")
    return n_bytes
