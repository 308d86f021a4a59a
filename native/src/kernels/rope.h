// Norms of query and key heads, rotary position embedding, and the way of keys and values into the paged KV cache.
#pragma once

namespace emel {
namespace {

EMEL_INLINE void rotate(float* x, const float* table, size_t n_rot, bool halves) {
  const size_t n_pairs = n_rot / 2;
  const float* cosines = table;
  const float* sines = table + n_pairs;
  for (size_t i = 0; i < n_pairs; ++i) {
    float* first = x + (halves ? i : 2 * i);
    float* second = x + (halves ? i + n_pairs : 2 * i + 1);
    const float a = *first;
    const float b = *second;
    *first = a * cosines[i] - b * sines[i];
    *second = a * sines[i] + b * cosines[i];
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
    rotate(values, table, a.n_rot, a.halves);
  }
}

// Su et al. 2021, arXiv:2104.09864; norms of heads before it: Henry et al. 2020, arXiv:2010.04245.
void rope_store(const RopeArgs& a) {
  const KvLayout kv(a.kv_type, a.n_kv_heads, a.head_dim);
  for (size_t token = a.token_begin; token < a.token_end; ++token) {
    const float* table = a.table + token * a.n_rot;
    float* q = a.q + token * a.n_heads * a.head_dim;
    float* k = a.k + token * a.n_kv_heads * a.head_dim;
    const float* v = a.v + token * a.n_kv_heads * a.head_dim;
    prepare_heads(q, a.n_heads, a.q_norm, table, a);
    prepare_heads(k, a.n_kv_heads, a.k_norm, table, a);
    const size_t position = static_cast<size_t>(a.positions[token]);
    const size_t sequence = static_cast<size_t>(a.sequences[token]);
    const size_t block = static_cast<size_t>(a.block_table[sequence * a.block_stride + position / EMEL_KV_BLOCK]);
    const size_t slot = position % EMEL_KV_BLOCK;
    for (size_t head = 0; head < a.n_kv_heads; ++head) {
      uint8_t* at = a.kv + block * a.block_bytes + head * kv.head_bytes;
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
