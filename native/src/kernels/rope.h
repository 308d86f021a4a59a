// Norms of query and key heads, rotary position embedding, and the way of keys and values into the paged KV cache.
#pragma once

namespace emel {
namespace {

// Pairs (i, i + n_rot / 2): a cos - b sin and a sin + b cos.
EMEL_INLINE void rotate_halves(float* x, const float* table, size_t n_pairs) {
  for (size_t i = 0; i < n_pairs; i += 16) {
    const int left = lanes_left(i, n_pairs);
    const F32 a = load_left(x + i, left);
    const F32 b = load_left(x + n_pairs + i, left);
    const F32 cosine = load_left(table + i, left);
    const F32 sine = load_left(table + n_pairs + i, left);
    store_left(x + i, f_sub(f_mul(a, cosine), f_mul(b, sine)), left);
    store_left(x + n_pairs + i, f_add(f_mul(a, sine), f_mul(b, cosine)), left);
  }
}

// Pairs (2i, 2i + 1) by the same products and sums: of a pair's two lanes, the first adds -(b sin).
EMEL_INLINE void rotate_adjacent(float* x, const float* table, size_t n_pairs) {
  alignas(64) static constexpr float kSigns[16] = {-1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1};
  size_t i = 0;
  for (; i + 8 <= n_pairs; i += 8) {
    const F32 pairs = f_load(x + 2 * i);
    const F32 own = f_mul(pairs, f_load_twice(table + i));
    const F32 other = f_mul(f_swap_pairs(pairs), f_load_twice(table + n_pairs + i));
    f_store(x + 2 * i, f_add(own, f_mul(other, f_load(kSigns))));
  }
  for (; i < n_pairs; ++i) {
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    x[2 * i] = a * table[i] - b * table[n_pairs + i];
    x[2 * i + 1] = a * table[n_pairs + i] + b * table[i];
  }
}

// One head of n values: x / sqrt(mean(x^2) + epsilon) * weight, in place; summed as rms_norm sums. Nobody notes the
// layer here, so a head whose squares are not finite becomes NaN as a whole and shows in the next norm.
EMEL_INLINE void norm_head(float* x, const float* weight, size_t n, float epsilon) {
  F32 squares = f_zero();
  for (size_t i = 0; i < n; i += 16) {
    const F32 v = load_left(x + i, lanes_left(i, n));
    squares = f_fma(v, v, squares);
  }
  const float sum = tree_sum(squares);
  const float spoil = 0.0f * sum;
  const F32 scale = f_set1(1.0f / __builtin_sqrtf(sum / static_cast<float>(n) + epsilon) + spoil);
  for (size_t i = 0; i < n; i += 16) {
    const int left = lanes_left(i, n);
    store_left(x + i, f_mul(f_mul(load_left(x + i, left), scale), load_left(weight + i, left)), left);
  }
}

EMEL_INLINE void prepare_heads(float* x, size_t n_heads, const float* norm, const float* table, const RopeArgs& a) {
  for (size_t head = 0; head < n_heads; ++head) {
    float* values = x + head * a.head_dim;
    if (norm != nullptr) norm_head(values, norm, a.head_dim, a.epsilon);
    if (a.halves) {
      rotate_halves(values, table, a.n_rot / 2);
    } else {
      rotate_adjacent(values, table, a.n_rot / 2);
    }
  }
}

// The block of a token in the cache.
EMEL_INLINE uint8_t* block_of_token(const RopeArgs& a, size_t token) {
  const size_t position = static_cast<size_t>(a.positions[token]);
  const int32_t* blocks = a.block_table + static_cast<size_t>(a.sequences[token]) * a.block_stride;
  return a.kv + static_cast<size_t>(blocks[position / EMEL_KV_BLOCK]) * a.block_bytes;
}

// A key goes into a line for every one or two of its dimensions, none of which is near: they are asked for while the
// heads are rotated.
EMEL_INLINE void fetch_for_store(const RopeArgs& a, const KvLayout& kv, size_t token) {
  const uint8_t* block = block_of_token(a, token);
  const size_t slot = static_cast<size_t>(a.positions[token]) % EMEL_KV_BLOCK;
  const size_t value_bytes = kv.padded_head_dim * kv_number_bytes(a.kv_type);
  for (size_t head = 0; head < a.n_kv_heads; ++head) {
    const uint8_t* at = block + head * kv.head_bytes;
    for (size_t line = 0; line < kv.values_at; line += kCacheLine) __builtin_prefetch(at + line, 1);
    const uint8_t* value = at + kv.values_at + kv.scale_bytes + slot * value_bytes;
    for (size_t line = 0; line < value_bytes; line += kCacheLine) __builtin_prefetch(value + line, 1);
  }
}

// Su et al. 2021, arXiv:2104.09864; norms of heads before it: Henry et al. 2020, arXiv:2010.04245.
void rope_store(const RopeArgs& a) {
  const KvLayout kv(a.kv_type, a.n_kv_heads, a.head_dim);
  for (size_t token = a.token_begin; token < a.token_end; ++token) {
    const size_t slot = static_cast<size_t>(a.positions[token]) % EMEL_KV_BLOCK;
    if (token == a.token_begin || slot == 0 || a.sequences[token] != a.sequences[token - 1]) {
      fetch_for_store(a, kv, token);
    }
    const float* table = a.table + token * a.n_rot;
    float* q = a.q + token * a.n_heads * a.head_dim;
    float* k = a.k + token * a.n_kv_heads * a.head_dim;
    const float* v = a.v + token * a.n_kv_heads * a.head_dim;
    prepare_heads(q, a.n_heads, a.q_norm, table, a);
    prepare_heads(k, a.n_kv_heads, a.k_norm, table, a);
    uint8_t* block = block_of_token(a, token);
    for (size_t head = 0; head < a.n_kv_heads; ++head) {
      uint8_t* at = block + head * kv.head_bytes;
      const float* key = k + head * a.head_dim;
      const float* value = v + head * a.head_dim;
      if (a.kv_type == EMEL_TYPE_Q8_0) {
        store_q8(kv, at, slot, key, value, a.head_dim);
      } else if (a.kv_type == EMEL_TYPE_F32) {
        store_floats<float>(kv, at, slot, key, value, a.head_dim);
      } else {
        store_floats<uint16_t>(kv, at, slot, key, value, a.head_dim);
      }
    }
  }
}

}  // namespace
}  // namespace emel
