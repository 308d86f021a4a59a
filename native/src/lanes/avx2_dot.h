// AVX2 with integer dot products by vpmaddubsw, arranged so that nothing saturates.
#pragma once

#include "lanes/avx2.h"

namespace emel {
namespace {

constexpr int kTileTokens = 2;  // tokens per tile of block weights
constexpr int kChainTokens = 1;  // tokens per tile that have the planes in chains of their own (dot_single)
constexpr bool kShiftSums = false;  // larger weights take more products here

// Pairs of products with a nibble reach at most 2*15*127 = 3810, so the eight of a block fit int16. Wider weights go
// nibble by nibble.
template <int T, int kFirst, int kCount>
EMEL_INLINE void add_nibbles(const U8 (&w)[8], const int8_t* a, size_t stride, I32 (&out)[T]) {
  const __m256i ones = _mm256_set1_epi16(1);
  I32 sums_i16[T];
#pragma unroll
  for (int t = 0; t < T; ++t) sums_i16[t] = i_zero();
#pragma unroll
  for (int j = kFirst; j < kFirst + kCount; ++j) {
#pragma unroll
    for (int t = 0; t < T; ++t) {
      const __m256i x = broadcast_four(a + t * stride + 4 * j);
      sums_i16[t].lo = _mm256_add_epi16(sums_i16[t].lo, _mm256_maddubs_epi16(w[j].lo, x));
      sums_i16[t].hi = _mm256_add_epi16(sums_i16[t].hi, _mm256_maddubs_epi16(w[j].hi, x));
    }
  }
#pragma unroll
  for (int t = 0; t < T; ++t) {
    out[t].lo = _mm256_add_epi32(out[t].lo, _mm256_madd_epi16(sums_i16[t].lo, ones));
    out[t].hi = _mm256_add_epi32(out[t].hi, _mm256_madd_epi16(sums_i16[t].hi, ones));
  }
}
template <int kPlanes, int T, int kFirst, int kCount>
EMEL_INLINE void nibbles_planes(const U8 (&w)[8], const int8_t* a, size_t low_at, size_t stride, I32 (&out)[T]) {
#pragma unroll
  for (int t = 0; t < T; ++t) out[t] = i_zero();
  add_nibbles<T, kFirst, kCount>(w, a, stride, out);
  if constexpr (kPlanes == 1) return;
#pragma unroll
  for (int t = 0; t < T; ++t) out[t] = i_sub(i_shl<8>(out[t]), out[t]);
  add_nibbles<T, kFirst, kCount>(w, a + low_at, stride, out);
}
template <int kPlanes, int T, int kBits, int kFirst, int kCount>
EMEL_INLINE void dot_planes(const U8 (&w)[8], const int8_t* a, size_t low_at, size_t stride, I32 (&out)[T]) {
  if constexpr (kBits <= 4) {
    nibbles_planes<kPlanes, T, kFirst, kCount>(w, a, low_at, stride, out);
  } else {
    U8 nibbles[8];
#pragma unroll
    for (int j = kFirst; j < kFirst + kCount; ++j) nibbles[j] = u_shift_right<4>(w[j], 15);
    nibbles_planes<kPlanes, T, kFirst, kCount>(nibbles, a, low_at, stride, out);
#pragma unroll
    for (int j = kFirst; j < kFirst + kCount; ++j) nibbles[j] = u_mask(w[j], 15);
    I32 low[T];
    nibbles_planes<kPlanes, T, kFirst, kCount>(nibbles, a, low_at, stride, low);
#pragma unroll
    for (int t = 0; t < T; ++t) out[t] = i_add(i_shl<4>(out[t]), low[t]);
  }
}
template <int kPlanes, int kBits, int kFirst, int kCount>
EMEL_INLINE I32 dot_single(const U8 (&w)[8], const int8_t* a, size_t low_at) {
  I32 out[1];
  dot_planes<kPlanes, 1, kBits, kFirst, kCount>(w, a, low_at, 0, out);
  return out[0];
}

// ---- peaks (kernels/roofline.h)

#define EMEL_HAS_PEAKS 1
constexpr int kPeakChains = 5;

// Any byte times any int8, as long as pairs fit int16. The empty statement makes w another one each time: the products,
// which do not depend on the sum, would be moved out of the loop. One half of a serves both, to save a register.
EMEL_INLINE I32 peak_dot_step(I32 sum, U8& w, U8 a) {
  __asm__ volatile("" : "+x"(w.lo), "+x"(w.hi));
  const __m256i ones = _mm256_set1_epi16(1);
  sum.lo = _mm256_add_epi32(sum.lo, _mm256_madd_epi16(_mm256_maddubs_epi16(w.lo, a.lo), ones));
  sum.hi = _mm256_add_epi32(sum.hi, _mm256_madd_epi16(_mm256_maddubs_epi16(w.hi, a.lo), ones));
  return sum;
}

}  // namespace
}  // namespace emel
