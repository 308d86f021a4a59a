// Sixteen lanes in one 512-bit register; integer dot products by vpdpbusd.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EMEL_INLINE static inline __attribute__((always_inline))
#define EMEL_INLINE_MEMBER inline __attribute__((always_inline))

namespace emel {
namespace {

using F32 = __m512;
using I32 = __m512i;

// Tile shapes that fit the register file: tokens per tile of block weights.
constexpr int kTileTokens = 8;
constexpr int kFloatTokens = 4;  // tokens per tile with float weights
constexpr int kScoreRows = 8;  // query rows per tile of attention scores
constexpr int kValueRows = 4;  // query rows and vectors of a head per tile of attention values
constexpr int kValueVectors = 4;

EMEL_INLINE __mmask16 first_lanes(int n) { return static_cast<__mmask16>((1u << n) - 1u); }

EMEL_INLINE F32 f_load(const float* p) { return _mm512_loadu_ps(p); }
EMEL_INLINE void f_store(float* p, F32 a) { _mm512_storeu_ps(p, a); }
EMEL_INLINE F32 f_load_n(const float* p, int n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
EMEL_INLINE void f_store_n(float* p, F32 a, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), a); }
EMEL_INLINE F32 f_set1(float x) { return _mm512_set1_ps(x); }
EMEL_INLINE F32 f_zero() { return _mm512_setzero_ps(); }
EMEL_INLINE F32 f_add(F32 a, F32 b) { return _mm512_add_ps(a, b); }
EMEL_INLINE F32 f_sub(F32 a, F32 b) { return _mm512_sub_ps(a, b); }
EMEL_INLINE F32 f_mul(F32 a, F32 b) { return _mm512_mul_ps(a, b); }
EMEL_INLINE F32 f_div(F32 a, F32 b) { return _mm512_div_ps(a, b); }
EMEL_INLINE F32 f_max(F32 a, F32 b) { return _mm512_max_ps(a, b); }
EMEL_INLINE F32 f_min(F32 a, F32 b) { return _mm512_min_ps(a, b); }
EMEL_INLINE F32 f_fma(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }
EMEL_INLINE F32 f_load_f16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
EMEL_INLINE void f_store_f16(uint16_t* p, F32 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
EMEL_INLINE F32 f_from_i(I32 a) { return _mm512_cvtepi32_ps(a); }
EMEL_INLINE I32 i_round(F32 a) { return _mm512_cvtps_epi32(a); }
EMEL_INLINE I32 i_bits(F32 a) { return _mm512_castps_si512(a); }
EMEL_INLINE F32 f_bits(I32 a) { return _mm512_castsi512_ps(a); }
EMEL_INLINE I32 i_set1(int32_t x) { return _mm512_set1_epi32(x); }
EMEL_INLINE I32 i_zero() { return _mm512_setzero_si512(); }
EMEL_INLINE I32 i_add(I32 a, I32 b) { return _mm512_add_epi32(a, b); }
EMEL_INLINE I32 i_sub(I32 a, I32 b) { return _mm512_sub_epi32(a, b); }
EMEL_INLINE I32 i_and(I32 a, I32 b) { return _mm512_and_si512(a, b); }
EMEL_INLINE I32 i_max(I32 a, I32 b) { return _mm512_max_epi32(a, b); }
template <int kBits>
EMEL_INLINE I32 i_shl(I32 a) {
  return _mm512_slli_epi32(a, kBits);
}
EMEL_INLINE void i_store_i8(int8_t* p, I32 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a));
}
EMEL_INLINE int32_t i_reduce_add(I32 a) { return _mm512_reduce_add_epi32(a); }
EMEL_INLINE int32_t i_reduce_max(I32 a) { return _mm512_reduce_max_epi32(a); }
EMEL_INLINE uint32_t f_equal_mask(F32 a, F32 b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }

EMEL_INLINE I32 broadcast_four(const int8_t* a) {
  int32_t word;
  memcpy(&word, a, sizeof word);
  return _mm512_set1_epi32(word);
}

// Keeps the compiler from gathering each token's products into one dependent chain.
template <int T>
EMEL_INLINE void keep_order(I32 (&out)[T]) {
#pragma unroll
  for (int t = 0; t < T; ++t) __asm__ volatile("" : "+v"(out[t]));
}

template <int T>
EMEL_INLINE void add_plane(const I32 (&weights_u8x64)[8], const int8_t* a, size_t stride, I32 (&out)[T]) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
#pragma unroll
    for (int t = 0; t < T; ++t) {
      out[t] = _mm512_dpbusd_epi32(out[t], weights_u8x64[j], broadcast_four(a + t * stride + 4 * j));
    }
    keep_order<T>(out);
  }
}

// Both planes against eight vectors of four elements each.
template <int T>
EMEL_INLINE void dot_planes(const I32 (&weights_u8x64)[8], const int8_t* a, size_t low_at, size_t stride,
                            I32 (&out)[T]) {
#pragma unroll
  for (int t = 0; t < T; ++t) out[t] = _mm512_setzero_si512();
  add_plane<T>(weights_u8x64, a, stride, out);
#pragma unroll
  for (int t = 0; t < T; ++t) out[t] = _mm512_sub_epi32(_mm512_slli_epi32(out[t], 8), out[t]);
  add_plane<T>(weights_u8x64, a + low_at, stride, out);
}
template <int T>
EMEL_INLINE void dot_q4(const uint8_t* w, const int8_t* a, size_t low_at, size_t stride, I32 (&out)[T]) {
  const I32 low_mask = _mm512_set1_epi8(15);
  I32 weights_u8x64[8];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const I32 both_u8x64 = _mm512_loadu_si512(w + 64 * j);
    weights_u8x64[j] = _mm512_and_si512(both_u8x64, low_mask);
    weights_u8x64[j + 4] = _mm512_and_si512(_mm512_srli_epi16(both_u8x64, 4), low_mask);
  }
  dot_planes<T>(weights_u8x64, a, low_at, stride, out);
}
template <int T>
EMEL_INLINE void dot_q8(const uint8_t* w, const int8_t* a, size_t low_at, size_t stride, I32 (&out)[T]) {
  I32 weights_u8x64[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) weights_u8x64[j] = _mm512_loadu_si512(w + 64 * j);
  dot_planes<T>(weights_u8x64, a, low_at, stride, out);
}

// One token: the planes in chains of their own, so that neither waits for the other.
struct Chains {
  I32 high = _mm512_setzero_si512();
  I32 low = _mm512_setzero_si512();
};
EMEL_INLINE void add_vector(Chains& sums, I32 weights_u8x64, const int8_t* a, size_t low_at) {
  sums.high = _mm512_dpbusd_epi32(sums.high, weights_u8x64, broadcast_four(a));
  sums.low = _mm512_dpbusd_epi32(sums.low, weights_u8x64, broadcast_four(a + low_at));
}
EMEL_INLINE I32 join_planes(const Chains& sums) {
  return _mm512_add_epi32(_mm512_sub_epi32(_mm512_slli_epi32(sums.high, 8), sums.high), sums.low);
}
EMEL_INLINE I32 dot_q4_single(const uint8_t* w, const int8_t* a, size_t low_at) {
  const I32 low_mask = _mm512_set1_epi8(15);
  Chains sums;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const I32 both_u8x64 = _mm512_loadu_si512(w + 64 * j);
    add_vector(sums, _mm512_and_si512(both_u8x64, low_mask), a + 4 * j, low_at);
    add_vector(sums, _mm512_and_si512(_mm512_srli_epi16(both_u8x64, 4), low_mask), a + 16 + 4 * j, low_at);
  }
  return join_planes(sums);
}
EMEL_INLINE I32 dot_q8_single(const uint8_t* w, const int8_t* a, size_t low_at) {
  Chains sums;
#pragma unroll
  for (int j = 0; j < 8; ++j) add_vector(sums, _mm512_loadu_si512(w + 64 * j), a + 4 * j, low_at);
  return join_planes(sums);
}

}  // namespace
}  // namespace emel
