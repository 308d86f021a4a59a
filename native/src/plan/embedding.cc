#include "plan/embedding.h"

#include <string.h>

#include "pack/pack.h"

namespace emel {
namespace {

// Where row `row` of the operation's result lies, in the arena or among the logits.
float* output_row(const OpRun& r, size_t row) {
  const size_t n = r.op.dim[0];
  return (r.op.out[0] == EMEL_LOGITS ? r.batch().logits : r.floats(r.op.out[0])) + row * n;
}

// The tokens of a token's sequence in this batch; they are adjacent.
Slice neighbours_of(const emel_batch& batch, size_t token) {
  const int32_t sequence = batch.sequences[token];
  Slice found{token, token + 1};
  while (found.begin > 0 && batch.sequences[found.begin - 1] == sequence) --found.begin;
  while (found.end < batch.n_tokens && batch.sequences[found.end] == sequence) ++found.end;
  return found;
}

void add_row(const float* row, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] += row[i];
}

}  // namespace

void run_embed(const OpRun& r) {
  const emel_weight& table = r.weight(0);
  const float* positions = r.optional_vector(1);
  const float* types = r.optional_vector(2);
  const Slice tokens = slice_of(r.batch().n_tokens, r.lane);
  for (size_t t = tokens.begin; t < tokens.end; ++t) {
    float* out = r.floats(r.op.out[0]) + t * table.cols;
    unpack_row(table.type, static_cast<const uint8_t*>(table.data), table.cols,
               static_cast<size_t>(r.batch().tokens[t]), out);
    if (r.op.param[0] != 1.0f) {
      for (size_t i = 0; i < table.cols; ++i) out[i] *= r.op.param[0];
    }
    if (types != nullptr) add_row(types, table.cols, out);
    if (positions != nullptr) {
      add_row(positions + static_cast<size_t>(r.batch().positions[t]) * table.cols, table.cols, out);
    }
  }
}

void run_gather(const OpRun& r) {
  const size_t n = r.op.dim[0];
  const Slice rows = slice_of(r.batch().n_outputs, r.lane);
  for (size_t row = rows.begin; row < rows.end; ++row) {
    const size_t from = static_cast<size_t>(r.batch().output_rows[row]);
    memcpy(output_row(r, row), r.floats(r.op.in[0]) + from * n, n * sizeof(float));
  }
}

void run_mean(const OpRun& r) {
  const Slice rows = slice_of(r.batch().n_outputs, r.lane);
  for (size_t row = rows.begin; row < rows.end; ++row) {
    const Slice tokens = neighbours_of(r.batch(), static_cast<size_t>(r.batch().output_rows[row]));
    MeanArgs a{};
    a.in = r.floats(r.op.in[0]);
    a.out = output_row(r, row);
    a.n = r.op.dim[0];
    a.row_begin = tokens.begin;
    a.row_end = tokens.end;
    r.kernels().mean(a);
  }
}

}  // namespace emel
