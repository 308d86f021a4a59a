// What the checks of one record say with: buffers in the arena, weights by slot, dimensions.
#pragma once

#include "core/error.h"
#include "kernels/layout.h"
#include "plan/plan.h"

namespace emel {

using Size = unsigned long long;

constexpr uint32_t kMaxDim = 1u << 24;

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

}  // namespace emel
