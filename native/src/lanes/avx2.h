// Sixteen lanes in two 256-bit registers. The integer dot products are in avx2_dot.h and avx_vnni.h.
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

// Tile shapes that fit the register file.
constexpr int kFloatTokens = 3;  // tokens per tile with float weights
constexpr int kFloatPartials = 2;  // of their four sums over k at once, 2 or 4
constexpr int kScoreRows = 4;  // query rows and blocks of keys per tile of attention scores
constexpr int kScoreBlocks = 1;
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
// What is written before it is done before it: else more is loaded ahead than there are registers for.
EMEL_INLINE void f_keep_order(F32& a) { __asm__ volatile("" : "+x"(a.lo), "+x"(a.hi)); }
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
template <int kBits>
EMEL_INLINE I32 i_shr(I32 a) {
  return {_mm256_srai_epi32(a.lo, kBits), _mm256_srai_epi32(a.hi, kBits)};
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
EMEL_INLINE F32 f_load_bf16(const uint16_t* p) {
  const __m256i lo = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i hi = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))};
}
EMEL_INLINE __m128i load_8(const uint8_t* p) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)); }
EMEL_INLINE F32 f_load_i8(const uint8_t* p) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_8(p))), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_8(p + 8)))};
}
EMEL_INLINE F32 f_load_u8(const uint8_t* p) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load_8(p))), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load_8(p + 8)))};
}
EMEL_INLINE I32 i_load_u8(const uint8_t* p) {
  return {_mm256_cvtepu8_epi32(load_8(p)), _mm256_cvtepu8_epi32(load_8(p + 8))};
}
EMEL_INLINE F32 f_load_low_nibbles(const uint8_t* p) { return f_from_i(i_and(i_load_u8(p), i_set1(15))); }
EMEL_INLINE F32 f_load_high_nibbles(const uint8_t* p) {
  const I32 bytes = i_load_u8(p);
  return f_from_i({_mm256_srli_epi32(bytes.lo, 4), _mm256_srli_epi32(bytes.hi, 4)});
}
EMEL_INLINE F32 f_load_twice(const float* p) {
  const __m256 v = _mm256_loadu_ps(p);
  return {_mm256_permutevar8x32_ps(v, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)),
          _mm256_permutevar8x32_ps(v, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7))};
}

EMEL_INLINE F32 f_swap_pairs(F32 a) { return {_mm256_permute_ps(a.lo, 0xb1), _mm256_permute_ps(a.hi, 0xb1)}; }
EMEL_INLINE F32 f_first_n(F32 a, F32 b, int n) {
  return {_mm256_blendv_ps(b.lo, a.lo, _mm256_castsi256_ps(lane_mask(n))),
          _mm256_blendv_ps(b.hi, a.hi, _mm256_castsi256_ps(lane_mask(n - 8)))};
}

// ---- 64 bytes: four elements of each of 16 rows

struct U8 {
  __m256i lo, hi;
};

EMEL_INLINE U8 u_load(const uint8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
EMEL_INLINE U8 u_mask(U8 a, uint8_t mask) {
  const __m256i m = _mm256_set1_epi8(static_cast<char>(mask));
  return {_mm256_and_si256(a.lo, m), _mm256_and_si256(a.hi, m)};
}
EMEL_INLINE U8 u_or(U8 a, U8 b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }
template <int kBits>
EMEL_INLINE U8 u_shift_right(U8 a, uint8_t mask) {
  return u_mask({_mm256_srli_epi16(a.lo, kBits), _mm256_srli_epi16(a.hi, kBits)}, mask);
}
template <int kBits>
EMEL_INLINE U8 u_shift_left(U8 a, uint8_t mask) {
  return u_mask({_mm256_slli_epi16(a.lo, kBits), _mm256_slli_epi16(a.hi, kBits)}, mask);
}
EMEL_INLINE U8 u_lookup(const uint8_t* table, U8 nibbles) {
  const __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm256_shuffle_epi8(t, nibbles.lo), _mm256_shuffle_epi8(t, nibbles.hi)};
}

}  // namespace
}  // namespace emel
