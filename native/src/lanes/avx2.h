// Sixteen lanes in two 256-bit registers; integer dot products by vpmaddubsw, arranged so that nothing saturates.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EMEL_INLINE static inline __attribute__((always_inline))
#define EMEL_INLINE_MEMBER inline __attribute__((always_inline))

namespace emel {
namespace {

struct F32 {
  __m256 lo, hi;
};
struct I32 {
  __m256i lo, hi;
};

// Tile shapes that fit the register file: tokens per tile of block weights.
constexpr int kTileTokens = 2;
constexpr int kFloatTokens = 1;  // tokens per tile with float weights
constexpr int kScoreRows = 4;  // query rows per tile of attention scores
constexpr int kValueRows = 2;  // query rows and vectors of a head per tile of attention values
constexpr int kValueVectors = 2;

EMEL_INLINE __m256i lane_mask(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

EMEL_INLINE F32 f_load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
EMEL_INLINE void f_store(float* p, F32 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
EMEL_INLINE F32 f_load_n(const float* p, int n) {
  return {_mm256_maskload_ps(p, lane_mask(n)), _mm256_maskload_ps(p + 8, lane_mask(n - 8))};
}
EMEL_INLINE void f_store_n(float* p, F32 a, int n) {
  _mm256_maskstore_ps(p, lane_mask(n), a.lo);
  _mm256_maskstore_ps(p + 8, lane_mask(n - 8), a.hi);
}
EMEL_INLINE F32 f_set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
EMEL_INLINE F32 f_zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
EMEL_INLINE F32 f_add(F32 a, F32 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
EMEL_INLINE F32 f_sub(F32 a, F32 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
EMEL_INLINE F32 f_mul(F32 a, F32 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
EMEL_INLINE F32 f_div(F32 a, F32 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
EMEL_INLINE F32 f_max(F32 a, F32 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
EMEL_INLINE F32 f_min(F32 a, F32 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
EMEL_INLINE F32 f_fma(F32 a, F32 b, F32 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
EMEL_INLINE F32 f_load_f16(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
EMEL_INLINE void f_store_f16(uint16_t* p, F32 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}
EMEL_INLINE F32 f_from_i(I32 a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
EMEL_INLINE I32 i_round(F32 a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
EMEL_INLINE I32 i_bits(F32 a) { return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)}; }
EMEL_INLINE F32 f_bits(I32 a) { return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)}; }
EMEL_INLINE I32 i_set1(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
EMEL_INLINE I32 i_zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
EMEL_INLINE I32 i_add(I32 a, I32 b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
EMEL_INLINE I32 i_sub(I32 a, I32 b) { return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)}; }
EMEL_INLINE I32 i_and(I32 a, I32 b) { return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)}; }
EMEL_INLINE I32 i_max(I32 a, I32 b) { return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)}; }
template <int kBits>
EMEL_INLINE I32 i_shl(I32 a) {
  return {_mm256_slli_epi32(a.lo, kBits), _mm256_slli_epi32(a.hi, kBits)};
}
EMEL_INLINE void i_store_i8(int8_t* p, I32 a) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xD8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}
EMEL_INLINE int32_t i_reduce_add(I32 a) {
  int32_t lanes[8];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), _mm256_add_epi32(a.lo, a.hi));
  int32_t sum = 0;
  for (int i = 0; i < 8; ++i) sum += lanes[i];
  return sum;
}
EMEL_INLINE int32_t i_reduce_max(I32 a) {
  int32_t lanes[8];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), _mm256_max_epi32(a.lo, a.hi));
  int32_t largest = lanes[0];
  for (int i = 1; i < 8; ++i) largest = lanes[i] > largest ? lanes[i] : largest;
  return largest;
}
EMEL_INLINE uint32_t f_equal_mask(F32 a, F32 b) {
  const uint32_t lo = static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ)));
  const uint32_t hi = static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ)));
  return lo | hi << 8;
}

EMEL_INLINE __m256i broadcast_four(const int8_t* a) {
  int32_t word;
  memcpy(&word, a, sizeof word);
  return _mm256_set1_epi32(word);
}
EMEL_INLINE __m256i load_bytes(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

// Pairs of 4-bit products reach at most 2*15*127 = 3810, so a whole block (8 of them) fits int16.
template <int T>
EMEL_INLINE void add_plane_q4(const uint8_t* w, const int8_t* a, size_t stride, I32 (&out)[T]) {
  const __m256i low_mask = _mm256_set1_epi8(15);
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i lo_i16x16[T];
  __m256i hi_i16x16[T];
#pragma unroll
  for (int t = 0; t < T; ++t) lo_i16x16[t] = hi_i16x16[t] = _mm256_setzero_si256();
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const __m256i rows_lo = load_bytes(w + 64 * j);
    const __m256i rows_hi = load_bytes(w + 64 * j + 32);
    const __m256i first_lo = _mm256_and_si256(rows_lo, low_mask);
    const __m256i first_hi = _mm256_and_si256(rows_hi, low_mask);
    const __m256i second_lo = _mm256_and_si256(_mm256_srli_epi16(rows_lo, 4), low_mask);
    const __m256i second_hi = _mm256_and_si256(_mm256_srli_epi16(rows_hi, 4), low_mask);
#pragma unroll
    for (int t = 0; t < T; ++t) {
      const __m256i first = broadcast_four(a + t * stride + 4 * j);
      const __m256i second = broadcast_four(a + t * stride + 16 + 4 * j);
      lo_i16x16[t] = _mm256_add_epi16(lo_i16x16[t], _mm256_maddubs_epi16(first_lo, first));
      hi_i16x16[t] = _mm256_add_epi16(hi_i16x16[t], _mm256_maddubs_epi16(first_hi, first));
      lo_i16x16[t] = _mm256_add_epi16(lo_i16x16[t], _mm256_maddubs_epi16(second_lo, second));
      hi_i16x16[t] = _mm256_add_epi16(hi_i16x16[t], _mm256_maddubs_epi16(second_hi, second));
    }
  }
#pragma unroll
  for (int t = 0; t < T; ++t) {
    out[t].lo = _mm256_add_epi32(out[t].lo, _mm256_madd_epi16(lo_i16x16[t], ones));
    out[t].hi = _mm256_add_epi32(out[t].hi, _mm256_madd_epi16(hi_i16x16[t], ones));
  }
}
// Unsigned bytes would saturate; as |w - 128| times the signed activation no pair exceeds 2*128*127 < 2^15.
// 128 times the sum of the activations is added back, so the result is that of the unsigned bytes.
EMEL_INLINE __m256i dot_bytes(__m256i signed_bytes, __m256i magnitude, __m256i activation) {
  const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(activation, signed_bytes));
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
template <int T>
EMEL_INLINE void add_plane_q8(const uint8_t* w, const int8_t* a, size_t stride, I32 (&out)[T]) {
  const __m256i flip = _mm256_set1_epi8(-128);
  const __m256i ones_u8 = _mm256_set1_epi8(1);
  const __m256i ones_i16 = _mm256_set1_epi16(1);
#pragma unroll
  for (int t = 0; t < T; ++t) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a + t * stride));
    const __m256i quads = _mm256_madd_epi16(_mm256_maddubs_epi16(ones_u8, x), ones_i16);
    const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(quads), _mm256_extracti128_si256(quads, 1));
    const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
    const __m128i one = _mm_add_epi32(two, _mm_shuffle_epi32(two, 0xB1));
    const __m256i offset = _mm256_slli_epi32(_mm256_broadcastd_epi32(one), 7);
    out[t].lo = _mm256_add_epi32(out[t].lo, offset);
    out[t].hi = _mm256_add_epi32(out[t].hi, offset);
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const __m256i rows_lo = _mm256_xor_si256(load_bytes(w + 64 * j), flip);
    const __m256i rows_hi = _mm256_xor_si256(load_bytes(w + 64 * j + 32), flip);
    const __m256i magnitude_lo = _mm256_abs_epi8(rows_lo);
    const __m256i magnitude_hi = _mm256_abs_epi8(rows_hi);
#pragma unroll
    for (int t = 0; t < T; ++t) {
      const __m256i activation = broadcast_four(a + t * stride + 4 * j);
      out[t].lo = _mm256_add_epi32(out[t].lo, dot_bytes(rows_lo, magnitude_lo, activation));
      out[t].hi = _mm256_add_epi32(out[t].hi, dot_bytes(rows_hi, magnitude_hi, activation));
    }
  }
}

template <int T>
EMEL_INLINE void times_radix(I32 (&out)[T]) {
#pragma unroll
  for (int t = 0; t < T; ++t) out[t] = i_sub(i_shl<8>(out[t]), out[t]);
}
template <int T>
EMEL_INLINE void dot_q4(const uint8_t* w, const int8_t* a, size_t low_at, size_t stride, I32 (&out)[T]) {
#pragma unroll
  for (int t = 0; t < T; ++t) out[t] = i_zero();
  add_plane_q4<T>(w, a, stride, out);
  times_radix<T>(out);
  add_plane_q4<T>(w, a + low_at, stride, out);
}
template <int T>
EMEL_INLINE void dot_q8(const uint8_t* w, const int8_t* a, size_t low_at, size_t stride, I32 (&out)[T]) {
#pragma unroll
  for (int t = 0; t < T; ++t) out[t] = i_zero();
  add_plane_q8<T>(w, a, stride, out);
  times_radix<T>(out);
  add_plane_q8<T>(w, a + low_at, stride, out);
}

// One token.
EMEL_INLINE I32 dot_q4_single(const uint8_t* w, const int8_t* a, size_t low_at) {
  I32 out[1];
  dot_q4<1>(w, a, low_at, 0, out);
  return out[0];
}
EMEL_INLINE I32 dot_q8_single(const uint8_t* w, const int8_t* a, size_t low_at) {
  I32 out[1];
  dot_q8<1>(w, a, low_at, 0, out);
  return out[0];
}

}  // namespace
}  // namespace emel
