"""Mirrors of native/include/emel.h: constants, structs and prototypes of everything outside its text section.

tests/unit/_native/test_abi.py reads the header and compares every constant, field and function with this file.
A field that is a Python keyword carries a trailing underscore (`in_`).
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int32, c_uint32, c_uint64, c_void_p
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, Any

from emel._native.library import LIBRARY, library_path

if TYPE_CHECKING:
    from collections.abc import Mapping

NONE = 2**64 - 1  # no operand
LOGITS = 2**64 - 2  # the batch's logits buffer
NO_WEIGHT = 2**32 - 1
KV_BLOCK = 16  # tokens in a block of the KV cache
ATTENTION_CHUNK = 256  # keys in a chunk of attention
ALIGNMENT = 64  # of arena offsets and packed matrices, in bytes
MAX_PARTS = 4  # matrices in one MATMUL
MAX_STEPS = 16  # of a sampling chain
MAX_TOP_LOGPROBS = 20


class Isa(IntEnum):
    """CPU routes; a later one of the same architecture is preferred."""

    SCALAR = 0
    AVX2 = 1
    AVX_VNNI = 2
    AVX512_VNNI = 3
    AVX512_AMX = 4
    NEON_DOT = 5
    NEON_I8MM = 6


class Step(IntEnum):
    """Steps of the sampling chain."""

    PENALTIES = 1
    DRY = 2
    TOP_N_SIGMA = 3
    TOP_K = 4
    TYPICAL_P = 5
    TOP_P = 6
    MIN_P = 7
    XTC = 8
    TEMPERATURE = 9


class Activations(IntEnum):
    """What enters a matrix of a block format is quantised to; each has results of its own."""

    INT16 = 0
    INT8 = 1


class OpKind(IntEnum):
    """Kinds of plan records."""

    EMBED = 1
    ROPE_TABLE = 2
    RMS_NORM = 3
    MATMUL = 4
    ROPE_STORE = 5
    ATTENTION = 6
    QUANTIZE = 7
    GATED = 8
    GATHER = 9
    ARGMAX = 10
    ADD = 11
    SHORT_CONV = 12
    TOP_K = 13
    EXPERT_ROWS = 14
    EXPERT_MATMUL = 15
    EXPERT_SUM = 16
    LAYER_NORM = 17
    MEAN = 18


OP_COUNT = 19


class Roof(IntEnum):
    """What emel_roofline measures."""

    INT8 = 0
    FMA = 1
    READ = 2


class OpFlag(IntFlag):
    """Flags of a plan record."""

    OUTPUT_ROWS = 1
    NO_BARRIER = 2


class PackJob(Structure):
    """One matrix to pack: GGUF rows at `src`, the 16-row layout at `dst`."""

    _fields_ = (
        ("src", c_void_p),
        ("src_bytes", c_uint64),
        ("dst", c_void_p),
        ("dst_bytes", c_uint64),
        ("rows", c_uint64),
        ("cols", c_uint64),
        ("type", c_uint32),
        ("reserved", c_uint32),
    )


class Op(Structure):
    """One record of a plan; operands are byte offsets into the arena."""

    _fields_ = (
        ("kind", c_uint32),
        ("flags", c_uint32),
        ("layer", c_uint32),
        ("segment", c_uint32),
        ("in_", c_uint64 * 4),
        ("out", c_uint64 * 4),
        ("weight", c_uint32 * 8),
        ("dim", c_uint32 * 8),
        ("param", c_float * 4),
    )


class Weight(Structure):
    """A packed matrix, or a plain F32/F64 vector."""

    _fields_ = (
        ("data", c_void_p),
        ("n_bytes", c_uint64),
        ("rows", c_uint64),
        ("cols", c_uint64),
        ("type", c_uint32),
        ("packed", c_uint32),
    )


class PlanDesc(Structure):
    """Everything emel_plan_create checks and copies."""

    _fields_ = (
        ("ops", POINTER(Op)),
        ("n_ops", c_uint64),
        ("weights", POINTER(Weight)),
        ("n_weights", c_uint64),
        ("arena_bytes", c_uint64),
        ("max_tokens", c_uint32),
        ("max_outputs", c_uint32),
        ("max_sequences", c_uint32),
        ("n_kv_layers", c_uint32),
        ("n_kv_heads", c_uint32),
        ("head_dim", c_uint32),
        ("n_blocks", c_uint32),
        ("n_vocab", c_uint32),
        ("isa", c_int32),
        ("n_state_layers", c_uint32),
        ("state_width", c_uint32),
        ("n_slots", c_uint32),
        ("output_width", c_uint32),
        ("kv_type", c_uint32),
        ("max_sequence_blocks", c_uint32),
        ("activations", c_uint32),
    )


class Counters(Structure):
    """What plan runs did: ops by kind, matmul parts by GGUF type, optimised or fallback."""

    _fields_ = (
        ("dispatches", c_uint64 * OP_COUNT),
        ("matmul_by_type", c_uint64 * 40),
        ("optimized", c_uint64),
        ("fallback", c_uint64),
    )


class Batch(Structure):
    """The arguments of one plan run."""

    _fields_ = (
        ("arena", c_void_p),
        ("arena_bytes", c_uint64),
        ("kv", c_void_p),
        ("kv_bytes", c_uint64),
        ("tokens", c_void_p),
        ("positions", c_void_p),
        ("sequences", c_void_p),
        ("block_table", c_void_p),
        ("output_rows", c_void_p),
        ("logits", c_void_p),
        ("argmax", c_void_p),
        ("bad_layer", c_void_p),
        ("n_tokens", c_uint32),
        ("n_sequences", c_uint32),
        ("n_outputs", c_uint32),
        ("block_stride", c_uint32),
        ("segment_begin", c_uint32),
        ("segment_end", c_uint32),
        ("state", c_void_p),
        ("state_bytes", c_uint64),
        ("slots", c_void_p),
    )


class Yarn(Structure):
    """Parameters of YaRN's frequencies."""

    _fields_ = (
        ("base", c_double),
        ("factor", c_double),
        ("original_context", c_double),
        ("beta_fast", c_double),
        ("beta_slow", c_double),
        ("n_rot", c_uint32),
        ("keep_fractions", c_uint32),
    )


class LogitBias(Structure):
    """What is added to a token's logit; -inf: never."""

    _fields_ = (("token", c_int32), ("bias", c_float))


class Breaker(Structure):
    """Tokens that DRY sees no repetition across: the head and a range of tails."""

    _fields_ = (("head", c_int32), ("tail", c_uint32), ("n_tail", c_uint32))


class Sampling(Structure):
    """Parameters of one choice."""

    _fields_ = (
        ("seed", c_uint64),
        ("position", c_uint64),
        ("allowed", c_void_p),
        ("biases", c_void_p),
        ("n_biases", c_uint64),
        ("history", c_void_p),
        ("n_history", c_uint64),
        ("breakers", c_void_p),
        ("n_breakers", c_uint64),
        ("breaker_tails", c_void_p),
        ("n_breaker_tails", c_uint64),
        ("temperature", c_float),
        ("dynatemp_range", c_float),
        ("dynatemp_exponent", c_float),
        ("top_n_sigma", c_float),
        ("typical_p", c_float),
        ("top_p", c_float),
        ("min_p", c_float),
        ("xtc_probability", c_float),
        ("xtc_threshold", c_float),
        ("repeat_penalty", c_float),
        ("presence_penalty", c_float),
        ("frequency_penalty", c_float),
        ("dry_multiplier", c_float),
        ("dry_base", c_float),
        ("mirostat_mu", c_float),
        ("mirostat", c_uint32),
        ("top_k", c_uint32),
        ("min_keep", c_uint32),
        ("repeat_last_n", c_int32),
        ("dry_penalty_last_n", c_int32),
        ("dry_allowed_length", c_uint32),
        ("n_steps", c_uint32),
        ("steps", c_uint32 * MAX_STEPS),
    )


class Choice(Structure):
    """A chosen token and its surprise in bits."""

    _fields_ = (("token", c_int32), ("surprise", c_float))


Prototype = tuple[Any, tuple[Any, ...]]

PROTOTYPES: Mapping[str, Prototype] = {
    "emel_abi_version": (c_uint32, ()),
    "emel_numerics_version": (c_uint32, ()),
    "emel_last_error": (c_char_p, ()),
    "emel_allocation_count": (c_uint64, ()),
    "emel_isa_mask": (c_uint32, ()),
    "emel_isa_name": (c_char_p, (c_int32,)),
    "emel_pool_create": (c_int32, (c_uint32, POINTER(c_void_p))),
    "emel_pool_destroy": (None, (c_void_p,)),
    "emel_pool_n_lanes": (c_uint32, (c_void_p,)),
    "emel_pool_use": (c_int32, (c_void_p, c_uint32)),
    "emel_pool_waited": (c_uint64, (c_void_p,)),
    "emel_pack_size": (c_int32, (c_uint32, c_uint64, c_uint64, POINTER(c_uint64))),
    "emel_pack": (c_int32, (c_void_p, POINTER(PackJob), c_uint64)),
    "emel_quantized_bytes": (c_uint64, (c_uint64, c_uint32)),
    "emel_kv_bytes": (c_uint64, (c_uint64, c_uint64, c_uint64, c_uint64, c_uint32)),
    "emel_state_bytes": (c_uint64, (c_uint64, c_uint64, c_uint64)),
    "emel_routing_bytes": (c_uint64, (c_uint64, c_uint64, c_uint64)),
    "emel_attention_scratch": (c_uint64, (c_uint64, c_uint64, c_uint64, c_uint64, c_uint64)),
    "emel_plan_create": (c_int32, (POINTER(PlanDesc), POINTER(c_void_p))),
    "emel_plan_destroy": (None, (c_void_p,)),
    "emel_plan_rebase": (c_int32, (c_void_p, c_uint32, c_void_p, c_uint64)),
    "emel_plan_run": (c_int32, (c_void_p, c_void_p, POINTER(Batch), POINTER(Counters))),
    "emel_dequantize": (c_int32, (c_uint32, c_void_p, c_uint64, c_void_p, c_uint64)),
    "emel_rope_frequencies": (c_int32, (c_double, c_uint32, c_void_p)),
    "emel_rope_yarn": (c_int32, (POINTER(Yarn), c_void_p, POINTER(c_double))),
    "emel_rope_long_magnitude": (c_int32, (c_double, c_double, POINTER(c_double))),
    "emel_choose_scratch": (c_uint64, (c_uint64, c_uint64)),
    "emel_choose": (c_int32, (c_void_p, c_uint64, POINTER(Sampling), c_void_p, c_uint64, POINTER(Choice))),
    "emel_logprobs": (c_int32, (c_void_p, c_uint64, c_int32, c_uint64, c_void_p, c_uint64, c_void_p, c_void_p)),
}

# What only measuring needs is declared by its wrapper, on first use.
ROOFLINE: Mapping[str, Prototype] = {
    "emel_roofline": (c_int32, (c_void_p, c_int32, c_uint32, c_void_p, c_uint64, c_double, POINTER(c_double))),
}


def declare(library: ctypes.CDLL, prototypes: Mapping[str, Prototype] = PROTOTYPES) -> None:
    """Sets the prototypes; raises ImportError naming the functions the library does not export."""
    missing = [name for name in prototypes if not hasattr(library, name)]
    if missing:
        raise ImportError(f"{library_path()} does not export {', '.join(missing)}: reinstall emel")
    for name, (result, arguments) in prototypes.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments


declare(LIBRARY)
