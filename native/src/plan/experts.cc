// A mixture of experts: choices, rows grouped by expert, one matrix product for each expert that anyone chose.
//
// A routing is read with its numbers checked: a plan may point at any bytes of the arena.
#include "plan/experts.h"

#include <string.h>

namespace emel {
namespace {

struct Routing {
  int32_t* places;
  int32_t* pairs;
  int32_t* begins;
  size_t n_pairs;
  size_t n_experts;

  Routing(const OpRun& r, uint64_t offset, size_t k, size_t n_experts_)
      : n_pairs(r.n_rows() * k), n_experts(n_experts_) {
    const size_t max_rows = r.outputs() ? r.run.plan->desc.max_outputs : r.run.plan->desc.max_tokens;
    const RoutingLayout layout(max_rows, k, n_experts);
    places = reinterpret_cast<int32_t*>(r.at(offset));
    pairs = places + layout.pairs_at;
    begins = places + layout.begins_at;
  }
  size_t checked(int32_t pair) const {
    const size_t at = static_cast<size_t>(static_cast<uint32_t>(pair));
    return at < n_pairs ? at : 0;
  }
  // The expert of a choice that is not grouped yet.
  size_t expert(size_t pair) const {
    const size_t id = static_cast<size_t>(static_cast<uint32_t>(places[pair]));
    return id < n_experts ? id : 0;
  }
  // The grouped rows of an expert.
  Slice rows_of(size_t expert) const {
    const auto begin = static_cast<size_t>(static_cast<uint32_t>(begins[expert]));
    const auto end = static_cast<size_t>(static_cast<uint32_t>(begins[expert + 1]));
    return begin < end && end <= n_pairs ? Slice{begin, end} : Slice{0, 0};
  }
};

// Experts ascending, then rows, then choices: where each choice (its expert in places) stands among the grouped rows.
void group_by_expert(const Routing& routing) {
  memset(routing.begins, 0, (routing.n_experts + 1) * sizeof(int32_t));
  for (size_t p = 0; p < routing.n_pairs; ++p) ++routing.begins[routing.expert(p) + 1];
  for (size_t e = 0; e < routing.n_experts; ++e) routing.begins[e + 1] += routing.begins[e];
  for (size_t p = 0; p < routing.n_pairs; ++p) {
    const int32_t place = routing.begins[routing.expert(p)]++;
    routing.places[p] = place;
    routing.pairs[routing.checked(place)] = static_cast<int32_t>(p);
  }
  for (size_t e = routing.n_experts; e > 0; --e) routing.begins[e] = routing.begins[e - 1];
  routing.begins[0] = 0;
}

}  // namespace

void run_top_k(const OpRun& r) {
  TopKArgs a{};
  a.n_experts = r.op.dim[0];
  a.k = r.op.dim[1];
  const Routing routing(r, r.op.out[1], a.k, a.n_experts);
  a.logits = r.floats(r.op.in[0]);
  a.bias = r.optional_vector(0);
  a.ids = routing.places;
  a.weights = r.floats(r.op.out[0]);
  const Slice rows = slice_of(r.n_rows(), r.lane);
  a.row_begin = rows.begin;
  a.row_end = rows.end;
  a.gating = r.op.dim[2];
  a.normalize = r.op.dim[3] == 1;
  a.scale = r.op.param[0] == 0.0f ? 1.0f : r.op.param[0];
  r.kernels().top_k(a);
  r.run.pool->barrier();
  if (r.lane.index == 0) group_by_expert(routing);
}

void run_expert_rows(const OpRun& r) {
  const size_t n = r.op.dim[0];
  const size_t k = r.op.dim[1];
  const Routing routing(r, r.op.in[1], k, r.op.dim[2]);
  const size_t row_bytes = r.op.dim[3] == 1 ? r.record_bytes(n) : n * sizeof(float);
  const Slice rows = slice_of(routing.n_pairs, r.lane);
  for (size_t row = rows.begin; row < rows.end; ++row) {
    const size_t from = routing.checked(routing.pairs[row]) / k;
    memcpy(r.at(r.op.out[0]) + row * row_bytes, r.at(r.op.in[0]) + from * row_bytes, row_bytes);
  }
}

// Every lane takes the same share of each expert's rows, however many tokens chose it.
void run_expert_matmul(const OpRun& r) {
  const size_t cols = r.op.dim[0];
  const size_t n_experts = r.op.dim[3];
  const Routing routing(r, r.op.in[1], r.op.dim[2], n_experts);
  for (uint32_t p = 0; p < r.op.dim[1]; ++p) {
    const emel_weight& weight = r.weight(p);
    MatmulArgs a{};
    a.rows = weight.rows / n_experts;
    const size_t n_groups = a.rows / kRowsPerGroup;
    const Slice groups = slice_of(n_groups, r.lane);
    if (groups.begin == groups.end) continue;
    const float* bias = r.optional_vector(4 + p);
    a.activation_stride = is_block_type(weight.type) ? r.record_bytes(cols) : cols * sizeof(float);
    a.out_stride = a.rows;
    a.cols = cols;
    a.n_planes = r.n_planes();
    a.fetches_near = r.run.plan->fetches_near;
    a.group_begin = groups.begin;
    a.group_end = groups.end;
    for (size_t expert = 0; expert < n_experts; ++expert) {
      const Slice rows = routing.rows_of(expert);
      if (rows.begin == rows.end) continue;
      a.packed = static_cast<const uint8_t*>(weight.data) + expert * n_groups * group_bytes(weight.type, cols);
      a.activation = r.at(r.op.in[0]) + rows.begin * a.activation_stride;
      a.out = r.floats(r.op.out[p]) + rows.begin * a.out_stride;
      a.bias = bias == nullptr ? nullptr : bias + expert * a.rows;
      a.n_tokens = rows.end - rows.begin;
      r.kernels().matmul[weight.type](a);
    }
  }
}

void run_expert_sum(const OpRun& r) {
  ExpertSumArgs a{};
  a.n = r.op.dim[0];
  a.k = r.op.dim[1];
  const Routing routing(r, r.op.in[1], a.k, r.op.dim[2]);
  a.results = r.floats(r.op.in[0]);
  a.places = routing.places;
  a.weights = r.floats(r.op.in[2]);
  a.out = r.floats(r.op.out[0]);
  const Slice rows = slice_of(r.n_rows(), r.lane);
  a.row_begin = rows.begin;
  a.row_end = rows.end;
  a.n_places = routing.n_pairs;
  r.kernels().expert_sum(a);
}

}  // namespace emel
