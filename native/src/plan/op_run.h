// What an operation has at hand when it runs on one lane.
#pragma once

#include "kernels/layout.h"
#include "plan/plan.h"
#include "pool/pool.h"

namespace emel {

struct Run {
  emel_plan* plan;
  emel_pool* pool;
  const emel_batch* batch;
  uint32_t n_tiles;
  bool split_chunks;
};

struct Slice {
  size_t begin;
  size_t end;
};

// Contiguous share of n items; below `least` items per lane the first lanes take it all.
inline Slice slice_of(size_t n, const Lane& lane, size_t least = 1) {
  size_t n_lanes = n / least;
  if (n_lanes == 0) n_lanes = 1;
  if (n_lanes > lane.n_lanes) n_lanes = lane.n_lanes;
  if (lane.index >= n_lanes) return {0, 0};
  return {n * lane.index / n_lanes, n * (lane.index + 1) / n_lanes};
}

// One op on one lane.
struct OpRun {
  const Run& run;
  const emel_op& op;
  const Lane& lane;

  const emel_batch& batch() const { return *run.batch; }
  const Kernels& kernels() const { return *run.plan->kernels; }
  bool outputs() const { return (op.flags & EMEL_FLAG_OUTPUT_ROWS) != 0; }
  size_t n_planes() const { return planes_of(run.plan->desc.activations); }
  // Of one quantised row of n values.
  size_t record_bytes(size_t n) const { return QuantizedLayout(n, n_planes()).bytes(); }
  size_t n_rows() const { return outputs() ? batch().n_outputs : batch().n_tokens; }
  uint8_t* at(uint64_t offset) const {
    return offset == EMEL_NONE ? nullptr : static_cast<uint8_t*>(batch().arena) + offset;
  }
  float* floats(uint64_t offset) const { return reinterpret_cast<float*>(at(offset)); }
  const emel_weight& weight(uint32_t slot) const { return run.plan->weights[op.weight[slot]]; }
  const float* optional_vector(uint32_t slot) const {
    return op.weight[slot] == EMEL_NO_WEIGHT ? nullptr : static_cast<const float*>(weight(slot).data);
  }
  size_t kv_block_bytes() const {
    const emel_plan_desc& d = run.plan->desc;
    return KvLayout(d.kv_type, d.n_kv_heads, d.head_dim).block_bytes;
  }
  uint8_t* kv_layer(size_t layer) const {
    return static_cast<uint8_t*>(batch().kv) + layer * run.plan->desc.n_blocks * kv_block_bytes();
  }
};

}  // namespace emel
