// What one record of a plan could get wrong, kind by kind.
#include "plan/op_check.h"

namespace emel {
namespace {

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

// The width of a result's rows, of which a product of `rows` may be a piece.
uint64_t result_width(OpCheck& c, uint64_t rows, bool is_logits) {
  if (c.op.dim[3] > 1) c.refuse(EMEL_INVALID_ARGUMENT, "dim[3]", c.op.dim[3], 1);
  if (c.op.dim[3] == 0) return rows;
  const uint64_t width = is_logits ? c.plan.desc.output_width : c.op.dim[4];
  if (c.op.dim[1] != 1) c.refuse(EMEL_INVALID_ARGUMENT, "dim[1] of a piece", c.op.dim[1], 1);
  if (c.op.dim[2] > width || rows > width - c.op.dim[2]) {
    c.refuse(EMEL_OUT_OF_BOUNDS, "last of a piece", c.op.dim[2] + rows, width);
  }
  return width;
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
    const bool is_logits = c.op.out[p] == EMEL_LOGITS;
    const uint64_t width = result_width(c, part->rows, is_logits);
    if (is_logits) {
      if (p != 0 || !c.rows_are_outputs()) c.refuse(EMEL_INVALID_ARGUMENT, "logits part", p, 0);
      c.output(EMEL_LOGITS, width);
    } else {
      c.floats("out", c.op.out[p], width);
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
  const uint64_t scratch = emel_attention_scratch(c.plan.desc.max_tokens, c.op.dim[0], c.op.dim[1], c.op.dim[2],
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

}  // namespace

emel_status verify_op(const emel_plan& plan, const emel_op& op, uint64_t index) {
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

}  // namespace emel
