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
constexpr bool kFetchesAll = false;  // blocks for one token, too, are asked for far ahead (kernels/fetch.h)
constexpr int kTileTokens = 8;
constexpr int kChainTokens = 4;  // tokens per tile that have the planes in chains of their own (dot_single)
constexpr bool kShiftSums = true;  // fields of two bits are shifted down in the sums, not in the weights
constexpr int kFloatTokens = 4;  // tokens per tile with float weights
constexpr int kFloatPartials = 4;  // of their four sums over k at once, 2 or 4
constexpr int kScoreRows = 8;  // query rows and blocks of keys per tile of attention scores
constexpr int kScoreBlocks = 2;
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
EMEL_INLINE void f_keep_order(F32&) {}  // there are registers enough
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
EMEL_INLINE I32 i_load(const int32_t* p) { return _mm512_loadu_si512(p); }
EMEL_INLINE I32 i_zero() { return _mm512_setzero_si512(); }
EMEL_INLINE I32 i_add(I32 a, I32 b) { return _mm512_add_epi32(a, b); }
EMEL_INLINE I32 i_sub(I32 a, I32 b) { return _mm512_sub_epi32(a, b); }
EMEL_INLINE I32 i_and(I32 a, I32 b) { return _mm512_and_si512(a, b); }
EMEL_INLINE I32 i_max(I32 a, I32 b) { return _mm512_max_epi32(a, b); }
template <int kBits>
EMEL_INLINE I32 i_shl(I32 a) {
  return _mm512_slli_epi32(a, kBits);
}
template <int kBits>
EMEL_INLINE I32 i_shr(I32 a) {
  return _mm512_srai_epi32(a, kBits);
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

EMEL_INLINE F32 f_load_bf16(const uint16_t* p) {
  return f_bits(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16));
}
EMEL_INLINE __m128i load_16(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
EMEL_INLINE F32 f_load_i8(const uint8_t* p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16(p))); }
EMEL_INLINE F32 f_load_u8(const uint8_t* p) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load_16(p))); }
EMEL_INLINE F32 f_load_low_nibbles(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_cvtepu8_epi32(load_16(p)), _mm512_set1_epi32(15)));
}
EMEL_INLINE F32 f_load_high_nibbles(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_srli_epi32(_mm512_cvtepu8_epi32(load_16(p)), 4));
}
EMEL_INLINE F32 f_load_twice(const float* p) {
  const I32 lanes = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return _mm512_permutexvar_ps(lanes, _mm512_castps256_ps512(_mm256_loadu_ps(p)));
}

EMEL_INLINE F32 f_swap_pairs(F32 a) { return _mm512_permute_ps(a, 0xb1); }
EMEL_INLINE F32 f_first_n(F32 a, F32 b, int n) { return _mm512_mask_blend_ps(first_lanes(n), b, a); }

// ---- 64 bytes: four elements of each of 16 rows

using U8 = __m512i;

EMEL_INLINE U8 u_load(const uint8_t* p) { return _mm512_loadu_si512(p); }
EMEL_INLINE U8 u_mask(U8 a, uint8_t mask) { return _mm512_and_si512(a, _mm512_set1_epi8(static_cast<char>(mask))); }
EMEL_INLINE void u_store(uint8_t* p, U8 a) { _mm512_storeu_si512(p, a); }
EMEL_INLINE U8 u_subtract(U8 a, uint8_t b) { return _mm512_sub_epi8(a, _mm512_set1_epi8(static_cast<char>(b))); }
EMEL_INLINE U8 u_or(U8 a, U8 b) { return _mm512_or_si512(a, b); }
template <int kBits>
EMEL_INLINE U8 u_shift_right(U8 a, uint8_t mask) {
  return u_mask(_mm512_srli_epi16(a, kBits), mask);
}
template <int kBits>
EMEL_INLINE U8 u_shift_left(U8 a, uint8_t mask) {
  return u_mask(_mm512_slli_epi16(a, kBits), mask);
}
EMEL_INLINE U8 u_lookup(const uint8_t* table, U8 nibbles) {
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load_16(table)), nibbles);
}

// Keeps the compiler from gathering each token's products into one dependent chain.
template <int T>
EMEL_INLINE void keep_order(I32 (&out)[T]) {
#pragma unroll
  for (int t = 0; t < T; ++t) __asm__ volatile("" : "+v"(out[t]));
}

// Both planes at once, in chains of their own: 16 of them hide what each waits for.
template <int kPlanes, int T, int kBits, int kFirst, int kCount>
EMEL_INLINE void dot_planes(const U8 (&w)[8], const int8_t* a, size_t low_at, size_t stride, I32 (&out)[T]) {
  I32 low[T];
#pragma unroll
  for (int t = 0; t < T; ++t) out[t] = low[t] = _mm512_setzero_si512();
#pragma unroll
  for (int j = kFirst; j < kFirst + kCount; ++j) {
#pragma unroll
    for (int t = 0; t < T; ++t) {
      const int8_t* token = a + t * stride + 4 * j;
      out[t] = _mm512_dpbusd_epi32(out[t], w[j], broadcast_four(token));
      if constexpr (kPlanes == 2) low[t] = _mm512_dpbusd_epi32(low[t], w[j], broadcast_four(token + low_at));
    }
    keep_order<T>(out);
    if constexpr (kPlanes == 2) keep_order<T>(low);
  }
  if constexpr (kPlanes == 1) return;
#pragma unroll
  for (int t = 0; t < T; ++t) out[t] = _mm512_add_epi32(low[t], _mm512_sub_epi32(_mm512_slli_epi32(out[t], 8), out[t]));
}
// The planes in chains of their own, so that neither waits for the other.
template <int kPlanes, int kBits, int kFirst, int kCount>
EMEL_INLINE I32 dot_single(const U8 (&w)[8], const int8_t* a, size_t low_at) {
  I32 high = _mm512_setzero_si512();
  I32 low = _mm512_setzero_si512();
#pragma unroll
  for (int j = kFirst; j < kFirst + kCount; ++j) {
    high = _mm512_dpbusd_epi32(high, w[j], broadcast_four(a + 4 * j));
    if constexpr (kPlanes == 2) low = _mm512_dpbusd_epi32(low, w[j], broadcast_four(a + low_at + 4 * j));
  }
  if constexpr (kPlanes == 1) return high;
  return _mm512_add_epi32(_mm512_sub_epi32(_mm512_slli_epi32(high, 8), high), low);
}

// ---- peaks (kernels/roofline.h)

#define EMEL_HAS_PEAKS 1
constexpr int kPeakChains = 16;

EMEL_INLINE I32 peak_dot_step(I32 sum, U8& w, U8 a) { return _mm512_dpbusd_epi32(sum, w, a); }

}  // namespace
}  // namespace emel
