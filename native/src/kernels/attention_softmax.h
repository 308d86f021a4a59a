// Softmax of a chunk's scores, and how chunks and a sink join.
#pragma once

namespace emel {
namespace {

EMEL_INLINE void cap_scores(float* scores, size_t first, size_t n_lanes, float cap) {
  const F32 inverse = f_set1(1.0f / cap);
  for (size_t i = first; i < n_lanes; i += 16) {
    const F32 s = f_load(scores + i);
    const F32 capped = f_mul(f_tanh(f_mul(s, inverse)), f_set1(cap));
    f_store(scores + i, f_fma(s, f_zero(), capped));  // s * 0: as in weigh_scores
  }
}

// Of sixteen numbers from key i on, those of the keys [begin, end), and `other` in place of the others.
EMEL_INLINE F32 only_seen(F32 numbers, F32 other, size_t i, size_t begin, size_t end) {
  if (i < begin) numbers = f_first_n(other, numbers, static_cast<int>(begin - i));
  if (i + 16 > end) numbers = f_first_n(numbers, other, static_cast<int>(end - i));
  return numbers;
}

// The largest of one row's scores, those of the keys [begin, end) of the chunk, which are capped before.
EMEL_INLINE float largest_score(float* scores, size_t begin, size_t end, float cap) {
  const size_t first = begin / 16 * 16;
  const size_t n_lanes = round_up(end, 16);
  if (cap != 0.0f) cap_scores(scores, first, n_lanes, cap);
  const F32 one_of_them = f_set1(scores[begin]);
  F32 largest = one_of_them;
  for (size_t i = first; i < n_lanes; i += 16) {
    largest = f_max(largest, only_seen(f_load(scores + i), one_of_them, i, begin, end));
  }
  return tree_max(largest);
}

// Weights of one row in place of its scores, and their sum; what else lies in their vectors becomes zero.
EMEL_INLINE float weigh_scores(float* scores, size_t begin, size_t end, float max) {
  const size_t first = begin / 16 * 16;
  const size_t n_lanes = round_up(end, 16);
  const F32 max_f32x16 = f_set1(max);
  F32 sum = f_zero();
  for (size_t i = first; i < n_lanes; i += 16) {
    const F32 s = f_load(scores + i);
    // s * 0 is nothing for a finite score and NaN for any other, which must not vanish in exp's clamp.
    F32 weight = f_fma(s, f_zero(), f_exp(f_sub(s, max_f32x16)));
    weight = only_seen(weight, f_zero(), i, begin, end);
    f_store(scores + i, weight);
    sum = f_add(sum, weight);
  }
  return tree_sum(sum);
}

// Joins rows [begin, end) of the chunk into the running ones. Sixteen rows share the exponentials.
EMEL_INLINE void join_rows(const Tile& tile, size_t begin, size_t end) {
  for (size_t row = begin; row < end; row += 16) {
    const int left = lanes_left(row, end);
    const F32 own = load_left(tile.running_max + row, left);
    const F32 other = load_left(tile.chunk_max + row, left);
    const F32 max = f_max(own, other);
    const F32 keep = f_exp(f_sub(own, max));
    const F32 take = f_exp(f_sub(other, max));
    const F32 kept = f_mul(load_left(tile.running_sum + row, left), keep);
    const F32 taken = f_mul(load_left(tile.chunk_sum + row, left), take);
    store_left(tile.running_sum + row, f_add(kept, taken), left);
    store_left(tile.running_max + row, max, left);
    store_left(tile.keep + row, keep, left);
    store_left(tile.take + row, take, left);
  }
  for (size_t row = begin; row < end; ++row) {
    const F32 keep = f_set1(tile.keep[row]);
    const F32 take = f_set1(tile.take[row]);
    float* running = tile.running + row * tile.padded;
    const float* chunk = tile.chunk + row * tile.padded;
    for (size_t d = 0; d < tile.padded; d += 16) {
      f_store(running + d, f_fma(f_load(chunk + d), take, f_mul(f_load(running + d), keep)));
    }
  }
}

// Rows [begin, end), whose first chunk this is.
EMEL_INLINE void begin_rows(const Tile& tile, size_t begin, size_t end) {
  const size_t n = end - begin;
  memcpy(tile.running + begin * tile.padded, tile.chunk + begin * tile.padded, n * tile.padded * sizeof(float));
  memcpy(tile.running_max + begin, tile.chunk_max + begin, n * sizeof(float));
  memcpy(tile.running_sum + begin, tile.chunk_sum + begin, n * sizeof(float));
}

// A sink is one more score, without a value: it takes part in the largest and in the sum alone. A NaN stays.
EMEL_INLINE void join_sink(float* running, float* running_max, float* running_sum, float sink, size_t padded) {
  const float max = *running_max > sink ? *running_max : sink;
  const float keep = exp_one(*running_max - max);
  const float take = 0.0f * sink + exp_one(sink - max);
  *running_sum = *running_sum * keep + take;
  *running_max = max;
  for (size_t d = 0; d < padded; d += 16) f_store(running + d, f_mul(f_load(running + d), f_set1(keep)));
}

EMEL_INLINE void divide_into(float* out, const float* running, float sum, size_t head_dim) {
  const F32 inverse = f_set1(1.0f / sum);
  for (size_t d = 0; d < head_dim; d += 16) {
    store_left(out + d, f_mul(f_load(running + d), inverse), lanes_left(d, head_dim));
  }
}

}  // namespace
}  // namespace emel
