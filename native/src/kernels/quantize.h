// Activation quantisation, RMS norm and gated activation: everything that ends in blocks of 32.
#pragma once

namespace emel {
namespace {

#if defined(EMEL_JOINS_PLANES)
constexpr bool kJoinsPlanes = true;
#else
constexpr bool kJoinsPlanes = false;
#endif

// Values below this are a zero block: most_quantum / amax would overflow.
constexpr float kSmallestAmax = 1.92592994e-34f;  // 2^-112

// q = 255 * high + low; the quotient is never near a tie, as 255 is odd.
EMEL_INLINE void store_planes(I32 q, uint8_t* record, const QuantizedLayout& layout, size_t at) {
  if (layout.n_planes == 1) return i_store_i8(reinterpret_cast<int8_t*>(record) + at, q);
#if defined(EMEL_JOINS_PLANES)
  store_joined(reinterpret_cast<int8_t*>(record) + 2 * at, q);
#else
  const I32 high = i_round(f_mul(f_from_i(q), f_set1(1.0f / static_cast<float>(kRadix))));
  i_store_i8(reinterpret_cast<int8_t*>(record) + at, high);
  i_store_i8(reinterpret_cast<int8_t*>(record) + layout.low_at() + at, i_sub(q, i_sub(i_shl<8>(high), high)));
#endif
}

// One block of 32 into its places of the record. A block with a value that is not finite gets a NaN scale, so
// that the damage shows in the result instead of vanishing in the rounding.
EMEL_INLINE void quantize_block(F32 first, F32 second, uint8_t* record, const QuantizedLayout& layout, size_t block) {
  const I32 sign_off = i_set1(0x7fffffff);
  const int32_t amax_bits = i_reduce_max(i_max(i_and(i_bits(first), sign_off), i_and(i_bits(second), sign_off)));
  float amax;
  memcpy(&amax, &amax_bits, sizeof amax);
  float d = 0.0f;
  I32 q_first = i_zero();
  I32 q_second = i_zero();
  if (amax_bits >= 0x7f800000) {
    const uint32_t nan_bits = 0x7fc00000u;
    memcpy(&d, &nan_bits, sizeof d);
  } else if (amax >= kSmallestAmax) {
    const float most = static_cast<float>(most_quantum(layout.n_planes));
    d = amax / most;
    const F32 inverse = f_set1(most / amax);
    q_first = i_round(f_mul(first, inverse));
    q_second = i_round(f_mul(second, inverse));
  }
  store_planes(q_first, record, layout, block * kBlock);
  store_planes(q_second, record, layout, block * kBlock + 16);
  const int32_t sum_first = i_reduce_add(q_first);
  const int32_t sum_second = i_reduce_add(q_second);
  const int32_t sum = sum_first + sum_second;
  const int32_t negative_sum = -sum;
  const float scaled_sum = d * static_cast<float>(sum);
  memcpy(record + layout.scales_at() + 4 * block, &d, 4);
  memcpy(record + layout.scaled_sums_at() + 4 * block, &scaled_sum, 4);
  memcpy(record + layout.negative_sums_at() + 4 * block, &negative_sum, 4);
  memcpy(record + layout.half_sums_at() + 8 * block, &sum_first, 4);
  memcpy(record + layout.half_sums_at() + 8 * block + 4, &sum_second, 4);
}

EMEL_INLINE int lanes_left(size_t at, size_t n) { return at >= n ? 0 : n - at >= 16 ? 16 : static_cast<int>(n - at); }

EMEL_INLINE F32 load_left(const float* p, int left) { return left == 16 ? f_load(p) : f_load_n(p, left); }

EMEL_INLINE void store_left(float* p, F32 a, int left) {
  if (left == 16) {
    f_store(p, a);
  } else {
    f_store_n(p, a, left);
  }
}

// x / sqrt(mean(x^2) + epsilon) * weight (Zhang and Sennrich 2019, arXiv:1910.07467).
void rms_norm(const NormArgs& a) {
  const QuantizedLayout layout(a.n, a.n_planes);
  for (size_t row = a.row_begin; row < a.row_end; ++row) {
    float* x = a.x + row * a.n;
    const float* delta = a.delta == nullptr ? nullptr : a.delta + row * a.n;
    const F32 delta_scale = f_set1(a.delta_scale == 0.0f ? 1.0f : a.delta_scale);
    F32 squares = f_zero();
    for (size_t i = 0; i < a.n; i += 16) {
      const int left = lanes_left(i, a.n);
      F32 v = load_left(x + i, left);
      if (delta != nullptr) {
        v = f_fma(load_left(delta + i, left), delta_scale, v);
        store_left(x + i, v, left);
      }
      squares = f_fma(v, v, squares);
    }
    const float sum = tree_sum(squares);
    int32_t* bad = a.bad_layer + (a.token_rows == nullptr ? row : static_cast<size_t>(a.token_rows[row]));
    if (!is_finite(sum) && *bad < 0) *bad = a.layer;
    const float mean = sum / static_cast<float>(a.n);
    const F32 scale = f_set1(1.0f / __builtin_sqrtf(mean + a.epsilon));
    for (size_t i = 0; i < a.n; i += kBlock) {
      F32 half[2];
      for (int h = 0; h < 2; ++h) {
        const size_t at = i + 16 * static_cast<size_t>(h);
        const int left = lanes_left(at, a.n);
        half[h] = left == 0 ? f_zero() : f_mul(f_mul(load_left(x + at, left), scale), load_left(a.weight + at, left));
        if (a.out != nullptr) store_left(a.out + row * a.n + at, half[h], left);
      }
      if (a.quantized != nullptr) {
        quantize_block(half[0], half[1], a.quantized + row * layout.bytes(), layout, i / kBlock);
      }
    }
  }
}

// What becomes of first (and second, unless there is none); without an activation it stays as it is.
constexpr int kNoActivation = -1;

template <int kActivation>
EMEL_INLINE F32 activated(const BlockArgs& a, F32 x) {
  if constexpr (kActivation == kSilu) return f_silu(x);
  if constexpr (kActivation == kGeluTanh) return f_gelu_tanh(x);
  if constexpr (kActivation == kGeluErf) return f_gelu_erf(x);
  if constexpr (kActivation == kClampedSwish) {
    const F32 least = f_min(f_set1(a.limit), x);  // in this order of operands a NaN stays
    return f_div(least, f_add(f_set1(1.0f), f_exp(f_mul(f_set1(-a.alpha), least))));
  }
  return x;
}

template <int kActivation>
EMEL_INLINE F32 gate_for(const BlockArgs& a, F32 x) {
  if constexpr (kActivation == kClampedSwish) {
    return f_add(f_max(f_set1(-a.limit), f_min(f_set1(a.limit), x)), f_set1(1.0f));
  }
  return x;
}

template <int kActivation>
EMEL_INLINE void blocks(const BlockArgs& a) {
  const QuantizedLayout layout(a.n, a.n_planes);
  for (size_t item = a.item_begin; item < a.item_end; ++item) {
    const size_t row = item / layout.n_blocks;
    const size_t block = item % layout.n_blocks;
    F32 half[2];
    for (int h = 0; h < 2; ++h) {
      const size_t at = block * kBlock + 16 * static_cast<size_t>(h);
      const int left = lanes_left(at, a.n);
      half[h] = left == 0 ? f_zero() : load_left(a.first + row * a.n + at, left);
      if (kActivation != kNoActivation && left != 0) {
        half[h] = activated<kActivation>(a, half[h]);
        if (a.second != nullptr) {
          half[h] = f_mul(half[h], gate_for<kActivation>(a, load_left(a.second + row * a.n + at, left)));
        }
      }
      if (a.out != nullptr) store_left(a.out + row * a.n + at, half[h], left);
    }
    if (a.quantized != nullptr) quantize_block(half[0], half[1], a.quantized + row * layout.bytes(), layout, block);
  }
}

void quantize(const BlockArgs& a) { blocks<kNoActivation>(a); }

// activation(first) * second (Shazeer 2020, arXiv:2002.05202).
template <int kActivation>
void gated(const BlockArgs& a) {
  blocks<kActivation>(a);
}

}  // namespace
}  // namespace emel
