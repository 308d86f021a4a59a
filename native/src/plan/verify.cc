// Everything a plan or a batch could get wrong is refused before it runs, so that running needs no checks. Here: what a
// plan is made for, and its weights; its records are in verify_op.cc, batches in verify_batch.cc.
#include "plan/op_check.h"

namespace emel {
namespace {

constexpr uint32_t kMaxBatch = 1u << 20;

emel_status check_weight(const emel_weight& w, uint64_t index) {
  uint64_t needed = 0;
  const uint64_t alignment = weight_alignment(w);
  if (w.packed != 0) {
    const emel_status status = emel_pack_size(w.type, w.rows, w.cols, &needed);
    if (status != EMEL_OK) return status;
  } else {
    if ((w.type != EMEL_TYPE_F32 && w.type != EMEL_TYPE_F64) || w.rows != 1 || w.cols == 0 || w.cols > kMaxDim) {
      return fail(EMEL_INVALID_ARGUMENT, "plan: weight %llu is no vector of F32 or F64", static_cast<Size>(index));
    }
    needed = w.cols * alignment;
  }
  if (w.data == nullptr || w.n_bytes < needed || reinterpret_cast<uintptr_t>(w.data) % alignment != 0) {
    return fail(EMEL_OUT_OF_BOUNDS, "plan: weight %llu has %llu bytes, needs %llu aligned to %llu",
                static_cast<Size>(index), static_cast<Size>(w.n_bytes), static_cast<Size>(needed),
                static_cast<Size>(alignment));
  }
  return EMEL_OK;
}

emel_status check_cache(const emel_plan_desc& d) {
  if (d.n_blocks == 0 || d.n_kv_heads == 0 || d.head_dim == 0 || d.head_dim > kMaxHeadDim) {
    return fail(EMEL_INVALID_ARGUMENT, "plan: KV cache of %u blocks, %u heads of %u (at most %zu)", d.n_blocks,
                d.n_kv_heads, d.head_dim, kMaxHeadDim);
  }
  if (!is_kv_type(d.kv_type)) {
    return fail(EMEL_UNSUPPORTED, "plan: KV cache of type %u; there are %d (F16), %d (F32) and %d (Q8_0)", d.kv_type,
                EMEL_TYPE_F16, EMEL_TYPE_F32, EMEL_TYPE_Q8_0);
  }
  if (d.max_sequence_blocks == 0 || d.max_sequence_blocks > d.n_blocks) {
    return fail(EMEL_INVALID_ARGUMENT, "plan: sequences of up to %u blocks in a KV cache of %u", d.max_sequence_blocks,
                d.n_blocks);
  }
  if (emel_kv_bytes(d.n_kv_layers, d.n_blocks, d.n_kv_heads, d.head_dim, d.kv_type) == 0) {
    return fail(EMEL_INVALID_ARGUMENT, "plan: a KV cache of %u layers, %u blocks, %u heads of %u is too large",
                d.n_kv_layers, d.n_blocks, d.n_kv_heads, d.head_dim);
  }
  return EMEL_OK;
}

}  // namespace

uint64_t positions_of(const emel_plan& plan) {
  uint64_t least = UINT64_MAX;
  for (uint64_t i = 0; i < plan.desc.n_ops; ++i) {
    const emel_op& op = plan.ops[i];
    if (op.kind != EMEL_OP_EMBED || op.weight[1] == EMEL_NO_WEIGHT) continue;
    const uint64_t rows = plan.weights[op.weight[1]].cols / plan.weights[op.weight[0]].cols;
    least = rows < least ? rows : least;
  }
  return least;
}

uint64_t weight_alignment(const emel_weight& weight) {
  if (weight.packed != 0) return kCacheLine;
  return weight.type == EMEL_TYPE_F64 ? 8 : 4;
}

emel_status verify_plan(const emel_plan& plan) {
  const emel_plan_desc& d = plan.desc;
  if (d.max_tokens == 0 || d.max_tokens > kMaxBatch || d.max_outputs == 0 || d.max_outputs > d.max_tokens ||
      d.max_sequences == 0 || d.max_sequences > d.max_tokens || d.n_vocab == 0 || d.arena_bytes > uint64_t{1} << 46) {
    return fail(EMEL_INVALID_ARGUMENT,
                "plan: %u tokens, %u outputs, %u sequences, %u vocabulary: each at least 1, outputs and sequences at "
                "most tokens",
                d.max_tokens, d.max_outputs, d.max_sequences, d.n_vocab);
  }
  if (d.n_kv_layers != 0) {
    const emel_status status = check_cache(d);
    if (status != EMEL_OK) return status;
  }
  if (d.n_state_layers != 0 && emel_state_bytes(d.n_state_layers, d.state_width, d.n_slots) == 0) {
    return fail(EMEL_INVALID_ARGUMENT, "plan: a state of %u layers, %u values, %u slots is empty or too large",
                d.n_state_layers, d.state_width, d.n_slots);
  }
  if (d.activations >= EMEL_ACTIVATIONS_COUNT) {
    return fail(EMEL_UNSUPPORTED, "plan: activations %u are unknown, allowed are 0 (int16) and 1 (int8)",
                d.activations);
  }
  for (uint64_t i = 0; i < d.n_weights; ++i) {
    const emel_status status = check_weight(plan.weights[i], i);
    if (status != EMEL_OK) return status;
  }
  for (uint64_t i = 0; i < d.n_ops; ++i) {
    if (i > 0 && plan.ops[i].segment < plan.ops[i - 1].segment) {
      return fail(EMEL_INVALID_ARGUMENT, "plan: op %llu goes back to segment %u", static_cast<Size>(i),
                  plan.ops[i].segment);
    }
    const emel_status status = verify_op(plan, plan.ops[i], i);
    if (status != EMEL_OK) return status;
  }
  return EMEL_OK;
}

}  // namespace emel
