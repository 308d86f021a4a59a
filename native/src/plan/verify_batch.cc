// What a batch could get wrong: its memory, its rows, the positions of its tokens.
#include "core/error.h"
#include "kernels/layout.h"
#include "plan/plan.h"

namespace emel {
namespace {

using Size = unsigned long long;

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
                "batch: sequence %u has position %u, the plan's sequences have at most %u blocks of 16 tokens",
                sequence, last, plan.desc.max_sequence_blocks);
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
      return fail(EMEL_INVALID_ARGUMENT, "batch: output row %u is token %d of %u; rows ascend", i, row, batch.n_tokens);
    }
  }
  status = check_state(plan, batch);
  return status == EMEL_OK ? check_tokens(plan, batch) : status;
}

}  // namespace emel
