// Everything a plan or a batch could get wrong is refused here, so that running needs no checks.
#include <string.h>

#include "core/error.h"
#include "kernels/layout.h"
#include "plan/plan.h"

namespace emel {
namespace {

using Size = unsigned long long;

constexpr uint32_t kMaxDim = 1u << 24;
constexpr uint32_t kMaxBatch = 1u << 20;

// The checks of one record; the first failure is kept in status.
struct OpCheck {
  const emel_plan& plan;
  const emel_op& op;
  Size index;
  emel_status status = EMEL_OK;

  bool rows_are_outputs() const { return (op.flags & EMEL_FLAG_OUTPUT_ROWS) != 0; }
  uint64_t max_rows() const { return rows_are_outputs() ? plan.desc.max_outputs : plan.desc.max_tokens; }

  void refuse(emel_status why, const char* what, uint64_t seen, uint64_t allowed) {
    if (status == EMEL_OK) {
      status = fail(why, "plan: op %llu (kind %u): %s is %llu, allowed %llu", index, op.kind, what,
                    static_cast<Size>(seen), static_cast<Size>(allowed));
    }
  }
  void buffer(const char* what, uint64_t offset, uint64_t rows, uint64_t row_bytes) {
    const uint64_t arena = plan.desc.arena_bytes;
    uint64_t end = 0;
    if (offset % kCacheLine != 0) refuse(EMEL_OUT_OF_BOUNDS, what, offset, kCacheLine);
    if (__builtin_mul_overflow(rows, row_bytes, &end) || __builtin_add_overflow(end, offset, &end)) end = UINT64_MAX;
    if (end > arena) refuse(EMEL_OUT_OF_BOUNDS, what, end, arena);
  }
  // Of one quantised row of n values.
  uint64_t record_bytes(uint64_t n) const { return QuantizedLayout(n, planes_of(plan.desc.activations)).bytes(); }
  void floats(const char* what, uint64_t offset, uint64_t n) { buffer(what, offset, max_rows(), n * 4); }
  void optional_floats(const char* what, uint64_t offset, uint64_t n) {
    if (offset != EMEL_NONE) floats(what, offset, n);
  }
  void optional_quantized(const char* what, uint64_t offset, uint64_t n) {
    if (offset != EMEL_NONE) buffer(what, offset, max_rows(), record_bytes(n));
  }
  // For ops that always work on all tokens.
  void no_output_rows() {
    if (rows_are_outputs()) refuse(EMEL_INVALID_ARGUMENT, "output rows flag", 1, 0);
  }
  void dim(const char* what, uint32_t seen, uint32_t most) {
    if (seen == 0 || seen > most) refuse(EMEL_INVALID_ARGUMENT, what, seen, most);
  }
  const emel_weight* weight(uint32_t slot, uint64_t rows, uint64_t cols) {
    const uint32_t at = op.weight[slot];
    if (at >= plan.desc.n_weights) {
      refuse(EMEL_OUT_OF_BOUNDS, "weight index", at, plan.desc.n_weights);
      return nullptr;
    }
    const emel_weight* found = &plan.weights[at];
    if (rows != 0 && found->rows != rows) refuse(EMEL_INVALID_ARGUMENT, "weight rows", found->rows, rows);
    if (found->cols != cols) refuse(EMEL_INVALID_ARGUMENT, "weight columns", found->cols, cols);
    return found;
  }
  void vector(uint32_t slot, uint32_t type, uint64_t n) {
    const emel_weight* found = weight(slot, 1, n);
    if (found == nullptr) return;
    if (found->packed != 0) refuse(EMEL_INVALID_ARGUMENT, "packed flag of a vector", found->packed, 0);
    if (found->type != type) refuse(EMEL_INVALID_ARGUMENT, "type of a vector", found->type, type);
  }
  // A table of rows that are added as they are, kept plain.
  void optional_rows(uint32_t slot, uint64_t cols) {
    const uint32_t at = op.weight[slot];
    if (at == EMEL_NO_WEIGHT) return;
    const uint64_t n = at < plan.desc.n_weights ? plan.weights[at].cols : cols;
    vector(slot, EMEL_TYPE_F32, n);
    if (n % cols != 0) refuse(EMEL_INVALID_ARGUMENT, "values of a table (whole rows)", n, cols);
  }
  // A result that may be the batch's logits.
  void output(uint64_t offset, uint64_t n) {
    if (offset != EMEL_LOGITS) {
      buffer("out[0]", offset, plan.desc.max_outputs, n * 4);
    } else if (n != plan.desc.output_width) {
      refuse(EMEL_INVALID_ARGUMENT, "output width", n, plan.desc.output_width);
    }
  }
  void optional_vector(uint32_t slot, uint64_t n) {
    if (op.weight[slot] != EMEL_NO_WEIGHT) vector(slot, EMEL_TYPE_F32, n);
  }
  const emel_weight* matrix(uint32_t slot, uint64_t cols) {
    const emel_weight* found = weight(slot, 0, cols);
    if (found != nullptr && found->packed == 0) refuse(EMEL_INVALID_ARGUMENT, "packed flag of a matrix", 0, 1);
    return found;
  }
};

void check_embed(OpCheck& c) {
  c.no_output_rows();
  const uint32_t at = c.op.weight[0];
  if (at >= c.plan.desc.n_weights) return c.refuse(EMEL_OUT_OF_BOUNDS, "weight index", at, c.plan.desc.n_weights);
  const emel_weight* table = c.matrix(0, c.plan.weights[at].cols);
  if (table->rows < c.plan.desc.n_vocab) {
    c.refuse(EMEL_INVALID_ARGUMENT, "embedding rows", table->rows, c.plan.desc.n_vocab);
  }
  c.optional_rows(1, table->cols);
  c.optional_rows(2, table->cols);
  c.floats("out[0]", c.op.out[0], table->cols);
}

void check_rope_table(OpCheck& c) {
  c.no_output_rows();
  const uint32_t at = c.op.weight[0];
  if (at >= c.plan.desc.n_weights) return c.refuse(EMEL_OUT_OF_BOUNDS, "weight index", at, c.plan.desc.n_weights);
  c.vector(0, EMEL_TYPE_F64, c.plan.weights[at].cols);
  c.floats("out[0]", c.op.out[0], 2 * c.plan.weights[at].cols);
}

void check_norm(OpCheck& c) {
  const uint32_t n = c.op.dim[0];
  c.dim("dim[0]", n, kMaxDim);
  c.floats("in[0]", c.op.in[0], n);
  c.optional_floats("in[1]", c.op.in[1], n);
  c.vector(0, EMEL_TYPE_F32, n);
  if (c.op.kind == EMEL_OP_LAYER_NORM) c.optional_vector(1, n);
  c.optional_floats("out[0]", c.op.out[0], n);
  c.optional_quantized("out[1]", c.op.out[1], n);
}

// The whole width of the logits, or a piece of it.
void check_logits_rows(OpCheck& c, uint64_t rows) {
  const uint64_t width = c.plan.desc.output_width;
  if (c.op.dim[3] > 1) c.refuse(EMEL_INVALID_ARGUMENT, "dim[3]", c.op.dim[3], 1);
  if (c.op.dim[3] == 0) {
    c.output(EMEL_LOGITS, rows);
  } else if (c.op.dim[2] > width || rows > width - c.op.dim[2]) {
    c.refuse(EMEL_OUT_OF_BOUNDS, "last of a piece of the logits", c.op.dim[2] + rows, width);
  }
}

void check_matmul(OpCheck& c) {
  const uint32_t cols = c.op.dim[0];
  const uint32_t n_parts = c.op.dim[1];
  c.dim("dim[0]", cols, kMaxDim);
  c.dim("dim[1]", n_parts, 4);
  if (c.status != EMEL_OK) return;
  bool quantized = false;
  for (uint32_t p = 0; p < n_parts; ++p) {
    const emel_weight* part = c.matrix(p, cols);
    if (part == nullptr) return;
    if (p == 0) quantized = is_block_type(part->type);
    if (is_block_type(part->type) != quantized) {
      c.refuse(EMEL_INVALID_ARGUMENT, "type of a part (block and float parts mixed)", part->type, part->type);
    }
    if (c.op.out[p] == EMEL_LOGITS) {
      if (p != 0 || !c.rows_are_outputs()) c.refuse(EMEL_INVALID_ARGUMENT, "logits part", p, 0);
      check_logits_rows(c, part->rows);
    } else {
      c.floats("out", c.op.out[p], part->rows);
    }
    c.optional_vector(4 + p, part->rows);
  }
  if (quantized) {
    c.buffer("in[0]", c.op.in[0], c.max_rows(), c.record_bytes(cols));
  } else {
    c.floats("in[0]", c.op.in[0], cols);
  }
}

void check_heads(OpCheck& c, uint32_t kv_layer) {
  c.dim("n_heads", c.op.dim[0], 4096);
  c.dim("n_kv_heads", c.op.dim[1], 4096);
  c.dim("head_dim", c.op.dim[2], kMaxHeadDim);
  if (c.status != EMEL_OK) return;
  if (c.op.dim[0] % c.op.dim[1] != 0) c.refuse(EMEL_INVALID_ARGUMENT, "n_heads", c.op.dim[0], c.op.dim[1]);
  if (c.op.dim[1] > c.plan.desc.n_kv_heads) {
    c.refuse(EMEL_INVALID_ARGUMENT, "n_kv_heads", c.op.dim[1], c.plan.desc.n_kv_heads);
  }
  if (c.op.dim[2] != c.plan.desc.head_dim) {
    c.refuse(EMEL_INVALID_ARGUMENT, "head_dim", c.op.dim[2], c.plan.desc.head_dim);
  }
  if (kv_layer >= c.plan.desc.n_kv_layers) {
    c.refuse(EMEL_OUT_OF_BOUNDS, "kv_layer", kv_layer, c.plan.desc.n_kv_layers);
  }
  c.no_output_rows();
}

void check_rope_store(OpCheck& c) {
  check_heads(c, c.op.dim[5]);
  if (c.status != EMEL_OK) return;
  const uint32_t n_rot = c.op.dim[3];
  if (n_rot > c.op.dim[2] || n_rot % 2 != 0) c.refuse(EMEL_INVALID_ARGUMENT, "n_rot", n_rot, c.op.dim[2]);
  if (c.op.dim[4] > 1) c.refuse(EMEL_INVALID_ARGUMENT, "pairing", c.op.dim[4], 1);
  c.floats("in[0]", c.op.in[0], uint64_t{c.op.dim[0]} * c.op.dim[2]);
  c.floats("in[1]", c.op.in[1], uint64_t{c.op.dim[1]} * c.op.dim[2]);
  c.floats("in[2]", c.op.in[2], uint64_t{c.op.dim[1]} * c.op.dim[2]);
  if (n_rot != 0) c.floats("in[3]", c.op.in[3], n_rot);
  c.optional_vector(0, c.op.dim[2]);
  c.optional_vector(1, c.op.dim[2]);
}

void check_attention(OpCheck& c) {
  check_heads(c, c.op.dim[3]);
  if (c.status != EMEL_OK) return;
  const uint64_t width = uint64_t{c.op.dim[0]} * c.op.dim[2];
  if (c.op.dim[5] > 1) c.refuse(EMEL_INVALID_ARGUMENT, "dim[5]", c.op.dim[5], 1);
  c.optional_vector(0, c.op.dim[0]);
  c.floats("in[0]", c.op.in[0], width);
  c.floats("out[0]", c.op.out[0], width);
  const uint64_t scratch =
      emel_attention_scratch(c.plan.desc.max_tokens, c.op.dim[0], c.op.dim[1], c.op.dim[2],
                             c.plan.desc.max_sequence_blocks);
  c.buffer("in[1]", c.op.in[1], 1, scratch == 0 ? UINT64_MAX : scratch);
}

void check_blocks(OpCheck& c, bool gated) {
  const uint64_t n = c.op.dim[0];
  const uint32_t per_token = c.op.dim[2] == 0 ? 1 : c.op.dim[2];
  c.dim("dim[0]", c.op.dim[0], kMaxDim);
  c.dim("dim[2]", per_token, kMostExperts);
  if (c.status != EMEL_OK) return;
  c.floats("in[0]", c.op.in[0], n * per_token);
  if (gated) {
    if (c.op.dim[1] >= kActivations) c.refuse(EMEL_UNSUPPORTED, "activation", c.op.dim[1], kActivations - 1);
    if (c.op.dim[1] == kClampedSwish) {
      c.floats("in[1]", c.op.in[1], n * per_token);
    } else {
      c.optional_floats("in[1]", c.op.in[1], n * per_token);
    }
    c.optional_floats("out[0]", c.op.out[0], n * per_token);
    if (c.op.out[1] != EMEL_NONE) {
      c.buffer("out[1]", c.op.out[1], c.max_rows() * per_token, c.record_bytes(n));
    }
  } else {
    c.buffer("out[0]", c.op.out[0], c.max_rows() * per_token, c.record_bytes(n));
  }
}

// GATHER and MEAN: rows of tokens into rows of outputs.
void check_gather(OpCheck& c) {
  const uint32_t n = c.op.dim[0];
  c.dim("dim[0]", n, kMaxDim);
  c.buffer("in[0]", c.op.in[0], c.plan.desc.max_tokens, uint64_t{n} * 4);
  c.output(c.op.out[0], n);
}

void check_add(OpCheck& c) {
  const uint32_t n = c.op.dim[0];
  c.dim("dim[0]", n, kMaxDim);
  c.floats("in[0]", c.op.in[0], n);
  c.floats("in[1]", c.op.in[1], n);
  c.optional_floats("in[2]", c.op.in[2], 1);
  c.floats("out[0]", c.op.out[0], n);
}

void check_convolution(OpCheck& c) {
  const uint32_t n = c.op.dim[0];
  const uint32_t taps = c.op.dim[1];
  c.no_output_rows();
  c.dim("dim[0]", n, kMaxDim);
  c.dim("dim[1]", taps, kMostTaps);
  if (c.status != EMEL_OK) return;
  const uint32_t n_kept = c.op.dim[3];
  if (n_kept < 1 || n_kept < taps - 1) c.refuse(EMEL_INVALID_ARGUMENT, "dim[3]", n_kept, taps - 1);
  if (uint64_t{n_kept} * n > c.plan.desc.state_width) {
    c.refuse(EMEL_OUT_OF_BOUNDS, "state of a slot", uint64_t{n_kept} * n, c.plan.desc.state_width);
  }
  if (c.op.dim[2] >= c.plan.desc.n_state_layers) {
    c.refuse(EMEL_OUT_OF_BOUNDS, "dim[2]", c.op.dim[2], c.plan.desc.n_state_layers);
  }
  c.vector(0, EMEL_TYPE_F32, uint64_t{taps} * n);
  c.optional_vector(1, n);
  c.floats("in[0]", c.op.in[0], uint64_t{n} * 3);
  c.floats("out[0]", c.op.out[0], n);
}

void check_routing(OpCheck& c, const char* what, uint64_t offset, uint32_t k, uint32_t n_experts) {
  c.dim("n_experts", n_experts, kMostExperts);
  c.dim("k", k, n_experts);
  if (c.status == EMEL_OK) c.buffer(what, offset, 1, emel_routing_bytes(c.max_rows(), k, n_experts));
}

void check_top_k(OpCheck& c) {
  const uint32_t n_experts = c.op.dim[0];
  const uint32_t k = c.op.dim[1];
  check_routing(c, "out[1]", c.op.out[1], k, n_experts);
  if (c.op.dim[2] >= kGatings) c.refuse(EMEL_UNSUPPORTED, "gating", c.op.dim[2], kGatings - 1);
  if (c.op.dim[3] > 1) c.refuse(EMEL_INVALID_ARGUMENT, "dim[3]", c.op.dim[3], 1);
  c.optional_vector(0, n_experts);
  c.floats("in[0]", c.op.in[0], n_experts);
  c.floats("out[0]", c.op.out[0], k);
}

void check_expert_rows(OpCheck& c) {
  const uint32_t n = c.op.dim[0];
  c.dim("dim[0]", n, kMaxDim);
  check_routing(c, "in[1]", c.op.in[1], c.op.dim[1], c.op.dim[2]);
  if (c.op.dim[3] > 1) c.refuse(EMEL_INVALID_ARGUMENT, "dim[3]", c.op.dim[3], 1);
  if (c.status != EMEL_OK) return;
  const uint64_t row_bytes = c.op.dim[3] == 1 ? c.record_bytes(n) : uint64_t{n} * 4;
  c.buffer("in[0]", c.op.in[0], c.max_rows(), row_bytes);
  c.buffer("out[0]", c.op.out[0], c.max_rows() * c.op.dim[1], row_bytes);
}

void check_expert_matmul(OpCheck& c) {
  const uint32_t cols = c.op.dim[0];
  const uint32_t k = c.op.dim[2];
  const uint32_t n_experts = c.op.dim[3];
  c.dim("dim[0]", cols, kMaxDim);
  c.dim("dim[1]", c.op.dim[1], 4);
  check_routing(c, "in[1]", c.op.in[1], k, n_experts);
  if (c.status != EMEL_OK) return;
  const uint64_t max_rows = c.max_rows() * k;
  bool quantized = false;
  for (uint32_t p = 0; p < c.op.dim[1]; ++p) {
    const emel_weight* part = c.matrix(p, cols);
    if (part == nullptr) return;
    if (p == 0) quantized = is_block_type(part->type);
    if (is_block_type(part->type) != quantized) {
      c.refuse(EMEL_INVALID_ARGUMENT, "type of a part (block and float parts mixed)", part->type, part->type);
    }
    if (part->rows % (uint64_t{n_experts} * kRowsPerGroup) != 0) {
      c.refuse(EMEL_INVALID_ARGUMENT, "rows of all experts (16 for each, or a multiple)", part->rows,
               uint64_t{n_experts} * kRowsPerGroup);
    }
    c.buffer("out", c.op.out[p], max_rows, part->rows / n_experts * 4);
    c.optional_vector(4 + p, part->rows);
  }
  c.buffer("in[0]", c.op.in[0], max_rows, quantized ? c.record_bytes(cols) : uint64_t{cols} * 4);
}

void check_expert_sum(OpCheck& c) {
  const uint32_t n = c.op.dim[0];
  c.dim("dim[0]", n, kMaxDim);
  check_routing(c, "in[1]", c.op.in[1], c.op.dim[1], c.op.dim[2]);
  if (c.status != EMEL_OK) return;
  c.buffer("in[0]", c.op.in[0], c.max_rows() * c.op.dim[1], uint64_t{n} * 4);
  c.floats("in[2]", c.op.in[2], c.op.dim[1]);
  c.floats("out[0]", c.op.out[0], n);
}

void check_argmax(OpCheck& c) {
  if (c.op.dim[0] != c.plan.desc.n_vocab) {
    c.refuse(EMEL_INVALID_ARGUMENT, "dim[0]", c.op.dim[0], c.plan.desc.n_vocab);
  }
  c.output(EMEL_LOGITS, c.op.dim[0]);
}

emel_status check_op(const emel_plan& plan, const emel_op& op, uint64_t index) {
  OpCheck c{plan, op, index};
  constexpr uint32_t kFlags = EMEL_FLAG_OUTPUT_ROWS | EMEL_FLAG_NO_BARRIER;
  if ((op.flags & ~kFlags) != 0) c.refuse(EMEL_UNSUPPORTED, "flags", op.flags, kFlags);
  switch (op.kind) {
    case EMEL_OP_EMBED:
      check_embed(c);
      break;
    case EMEL_OP_ROPE_TABLE:
      check_rope_table(c);
      break;
    case EMEL_OP_RMS_NORM:
    case EMEL_OP_LAYER_NORM:
      check_norm(c);
      break;
    case EMEL_OP_MATMUL:
      check_matmul(c);
      break;
    case EMEL_OP_ROPE_STORE:
      check_rope_store(c);
      break;
    case EMEL_OP_ATTENTION:
      check_attention(c);
      break;
    case EMEL_OP_QUANTIZE:
      check_blocks(c, false);
      break;
    case EMEL_OP_GATED:
      check_blocks(c, true);
      break;
    case EMEL_OP_GATHER:
    case EMEL_OP_MEAN:
      check_gather(c);
      break;
    case EMEL_OP_ARGMAX:
      check_argmax(c);
      break;
    case EMEL_OP_ADD:
      check_add(c);
      break;
    case EMEL_OP_SHORT_CONV:
      check_convolution(c);
      break;
    case EMEL_OP_TOP_K:
      check_top_k(c);
      break;
    case EMEL_OP_EXPERT_ROWS:
      check_expert_rows(c);
      break;
    case EMEL_OP_EXPERT_MATMUL:
      check_expert_matmul(c);
      break;
    case EMEL_OP_EXPERT_SUM:
      check_expert_sum(c);
      break;
    default:
      return fail(EMEL_UNSUPPORTED, "plan: op %llu has unknown kind %u", static_cast<Size>(index), op.kind);
  }
  return c.status;
}

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

emel_status check_sequence(const emel_plan& plan, const emel_batch& batch, uint32_t sequence, uint32_t last) {
  const int32_t* blocks = batch.block_table + static_cast<size_t>(sequence) * batch.block_stride;
  for (uint32_t b = 0; b <= last / EMEL_KV_BLOCK; ++b) {
    if (b >= batch.block_stride || blocks[b] < 0 || static_cast<uint32_t>(blocks[b]) >= plan.desc.n_blocks) {
      return fail(EMEL_OUT_OF_BOUNDS, "batch: sequence %u position %u needs block %u, which is not in its table",
                  sequence, last, b);
    }
  }
  if (plan.desc.n_kv_layers != 0 && last / EMEL_KV_BLOCK >= plan.desc.max_sequence_blocks) {
    return fail(EMEL_OUT_OF_BOUNDS,
                "batch: sequence %u has position %u, the plan's sequences have at most %u blocks of 16 tokens", sequence,
                last, plan.desc.max_sequence_blocks);
  }
  return EMEL_OK;
}

emel_status check_memory(const char* what, const void* memory, uint64_t n_bytes, uint64_t needed) {
  if (memory == nullptr || n_bytes < needed) {
    return fail(EMEL_OUT_OF_BOUNDS, "batch: %s of %llu bytes; the plan needs %llu", what,
                static_cast<Size>(memory == nullptr ? 0 : n_bytes), static_cast<Size>(needed));
  }
  if (reinterpret_cast<uintptr_t>(memory) % kCacheLine != 0) {
    return fail(EMEL_OUT_OF_BOUNDS, "batch: the %s begins at no multiple of 64 bytes", what);
  }
  return EMEL_OK;
}

emel_status check_state(const emel_plan& plan, const emel_batch& batch) {
  const emel_plan_desc& d = plan.desc;
  if (d.n_state_layers == 0) return EMEL_OK;
  const uint64_t needed = emel_state_bytes(d.n_state_layers, d.state_width, d.n_slots);
  if (batch.state == nullptr || batch.slots == nullptr || batch.state_bytes < needed ||
      reinterpret_cast<uintptr_t>(batch.state) % kCacheLine != 0) {
    return fail(EMEL_OUT_OF_BOUNDS, "batch: state of %llu bytes; the plan needs %llu aligned to 64, and slots",
                static_cast<Size>(batch.state_bytes), static_cast<Size>(needed));
  }
  for (uint32_t s = 0; s < batch.n_sequences; ++s) {
    if (batch.slots[s] < 0 || static_cast<uint32_t>(batch.slots[s]) >= d.n_slots) {
      return fail(EMEL_OUT_OF_BOUNDS, "batch: sequence %u has its state in slot %d of %u", s, batch.slots[s],
                  d.n_slots);
    }
  }
  return EMEL_OK;
}

emel_status check_tokens(const emel_plan& plan, const emel_batch& batch) {
  for (uint32_t i = 0; i < batch.n_tokens; ++i) {
    const int32_t token = batch.tokens[i];
    const int32_t position = batch.positions[i];
    const int32_t sequence = batch.sequences[i];
    if (token < 0 || static_cast<uint32_t>(token) >= plan.desc.n_vocab) {
      return fail(EMEL_INVALID_ARGUMENT, "batch: token %u has id %d, the vocabulary has %u", i, token,
                  plan.desc.n_vocab);
    }
    if (position < 0 || sequence < 0 || static_cast<uint32_t>(sequence) >= batch.n_sequences) {
      return fail(EMEL_INVALID_ARGUMENT, "batch: token %u has position %d in sequence %d of %u", i, position, sequence,
                  batch.n_sequences);
    }
    if (static_cast<uint32_t>(position) >= plan.n_positions) {
      return fail(EMEL_OUT_OF_BOUNDS, "batch: token %u has position %d, the model has %llu", i, position,
                  static_cast<Size>(plan.n_positions));
    }
    const bool starts = i == 0 || batch.sequences[i - 1] != sequence;
    if (!starts && (position == 0 || batch.positions[i - 1] != position - 1)) {
      return fail(EMEL_INVALID_ARGUMENT, "batch: token %u has position %d after %d", i, position,
                  batch.positions[i - 1]);
    }
    if (starts && i > 0 && batch.sequences[i - 1] > sequence) {
      return fail(EMEL_INVALID_ARGUMENT, "batch: sequence %d after %d; sequences ascend", sequence,
                  batch.sequences[i - 1]);
    }
    if (i + 1 == batch.n_tokens || batch.sequences[i + 1] != sequence) {
      const emel_status status =
          check_sequence(plan, batch, static_cast<uint32_t>(sequence), static_cast<uint32_t>(position));
      if (status != EMEL_OK) return status;
    }
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
    return fail(EMEL_UNSUPPORTED, "plan: activations %u are unknown, allowed are 0 (int16) and 1 (int8)", d.activations);
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
    const emel_status status = check_op(plan, plan.ops[i], i);
    if (status != EMEL_OK) return status;
  }
  return EMEL_OK;
}

emel_status verify_batch(const emel_plan& plan, const emel_batch& batch) {
  const emel_plan_desc& d = plan.desc;
  if (batch.n_tokens == 0 || batch.n_tokens > d.max_tokens || batch.n_outputs > d.max_outputs ||
      batch.n_sequences == 0 || batch.n_sequences > d.max_sequences) {
    return fail(EMEL_INVALID_ARGUMENT, "batch: %u tokens, %u outputs, %u sequences; the plan holds %u, %u, %u",
                batch.n_tokens, batch.n_outputs, batch.n_sequences, d.max_tokens, d.max_outputs, d.max_sequences);
  }
  const uint64_t kv_bytes = emel_kv_bytes(d.n_kv_layers, d.n_blocks, d.n_kv_heads, d.head_dim, d.kv_type);
  emel_status status = check_memory("arena", batch.arena, batch.arena_bytes, d.arena_bytes);
  if (status == EMEL_OK && kv_bytes != 0) status = check_memory("KV cache", batch.kv, batch.kv_bytes, kv_bytes);
  if (status != EMEL_OK) return status;
  if (batch.tokens == nullptr || batch.positions == nullptr || batch.sequences == nullptr ||
      batch.block_table == nullptr || batch.bad_layer == nullptr ||
      (batch.n_outputs != 0 && (batch.output_rows == nullptr || batch.logits == nullptr || batch.argmax == nullptr))) {
    return fail(EMEL_INVALID_ARGUMENT, "batch: a required array is NULL");
  }
  for (uint32_t i = 0; i < batch.n_outputs; ++i) {
    const int32_t row = batch.output_rows[i];
    if (row < 0 || static_cast<uint32_t>(row) >= batch.n_tokens || (i > 0 && batch.output_rows[i - 1] >= row)) {
      return fail(EMEL_INVALID_ARGUMENT, "batch: output row %u is token %d of %u; rows ascend", i, row,
                  batch.n_tokens);
    }
  }
  status = check_state(plan, batch);
  return status == EMEL_OK ? check_tokens(plan, batch) : status;
}

}  // namespace emel
