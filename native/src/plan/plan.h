// A verified plan: its records, its weights and what a run needs that is sized once.
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "emel.h"
#include "kernels/table.h"

namespace emel {

// Query tokens of one sequence, consecutive; at most tokens_per_tile.
struct QueryTile {
  uint32_t token;
  uint32_t n_tokens;
  uint32_t position;
  uint32_t sequence;
  uint32_t n_keys;  // of the sequence, this batch's included
};

// Batches up to this many tokens split long contexts over the lanes at chunk borders.
constexpr uint32_t kSplitTokens = 16;

constexpr size_t planes_of(uint32_t activations) { return activations == EMEL_ACTIVATIONS_INT8 ? 1 : 2; }

const Kernels* kernels_of(int32_t isa);
// Of the address of a weight's bytes.
uint64_t weight_alignment(const emel_weight& weight);
emel_status verify_plan(const emel_plan& plan);
// The record at index alone.
emel_status verify_op(const emel_plan& plan, const emel_op& op, uint64_t index);
// The least rows of any table of positions.
uint64_t positions_of(const emel_plan& plan);
emel_status verify_batch(const emel_plan& plan, const emel_batch& batch);

}  // namespace emel

struct emel_plan {
  emel_plan_desc desc;
  emel_op* ops;
  emel_weight* weights;
  const emel::Kernels* kernels;
  pthread_mutex_t run_mutex;  // of what a run writes here
  emel::QueryTile* tiles;  // (max_tokens,)
  std::atomic<uint32_t>* next_item;  // (n_ops,): attention items taken so far
  uint32_t tokens_per_tile;
  bool fetches_near;  // of MatmulArgs
  uint64_t n_positions;  // that every table of positions has a row for
};
