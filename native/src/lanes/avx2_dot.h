// AVX2 with integer dot products by vpmaddubsw, arranged so that nothing saturates.
#pragma once

#include "lanes/avx2.h"

// Two planes of activations are one int16 each: that takes as many products as the planes would, whatever the weights.
#define EMEL_JOINS_PLANES 1

namespace emel {
namespace {

constexpr bool kFetchesAll = true;  // blocks for one token, too, are asked for far ahead (kernels/fetch.h)
constexpr int kTileTokens = 4;  // tokens per tile of block weights
constexpr int kChainTokens = 1;  // tokens per tile that have the planes in chains of their own (dot_single)
constexpr bool kShiftSums = false;  // larger weights take more products with one plane

// Sums are made in the order they are written in: regrouped, they take more registers than there are.
EMEL_INLINE void keep_order(I32& sum) { __asm__ volatile("" : "+x"(sum.lo), "+x"(sum.hi)); }

// So many pairs of products fit int16: 8 * 2 * 15 * 127 = 30480, 4 * 2 * 31 * 127 = 31496, 2 * 2 * 63 * 127 = 32004.
constexpr int pairs_in_i16(int bits) { return bits <= 4 ? 8 : bits == 5 ? 4 : 2; }

// One plane, with weights of up to six bits.
template <int T, int kBits, int kFirst, int kCount>
EMEL_INLINE void add_bytes(const U8 (&w)[8], const int8_t* a, size_t stride, I32 (&out)[T]) {
  constexpr int kRun = pairs_in_i16(kBits) < kCount ? pairs_in_i16(kBits) : kCount;
  const __m256i ones = _mm256_set1_epi16(1);
#pragma unroll
  for (int run = kFirst; run < kFirst + kCount; run += kRun) {
    I32 sums_i16[T];
#pragma unroll
    for (int t = 0; t < T; ++t) sums_i16[t] = i_zero();
#pragma unroll
    for (int j = run; j < run + kRun; ++j) {
#pragma unroll
      for (int t = 0; t < T; ++t) {
        const __m256i x = broadcast_four(a + static_cast<size_t>(t) * stride + 4 * j);
        sums_i16[t].lo = _mm256_add_epi16(sums_i16[t].lo, _mm256_maddubs_epi16(w[j].lo, x));
        sums_i16[t].hi = _mm256_add_epi16(sums_i16[t].hi, _mm256_maddubs_epi16(w[j].hi, x));
        keep_order(sums_i16[t]);
      }
    }
#pragma unroll
    for (int t = 0; t < T; ++t) {
      out[t].lo = _mm256_add_epi32(out[t].lo, _mm256_madd_epi16(sums_i16[t].lo, ones));
      out[t].hi = _mm256_add_epi32(out[t].hi, _mm256_madd_epi16(sums_i16[t].hi, ones));
    }
  }
}

// Four columns of a row are two pairs of int16: the first with the third, and the second with the fourth (store_joined).
template <int T, int kFirst, int kCount>
EMEL_INLINE void add_pairs(const U8 (&w)[8], const int8_t* a, size_t stride, I32 (&out)[T]) {
  const __m256i bytes = _mm256_set1_epi16(0xff);
#pragma unroll
  for (int j = kFirst; j < kFirst + kCount; ++j) {
    const U8 even = {_mm256_and_si256(w[j].lo, bytes), _mm256_and_si256(w[j].hi, bytes)};
    const U8 odd = {_mm256_srli_epi16(w[j].lo, 8), _mm256_srli_epi16(w[j].hi, 8)};
#pragma unroll
    for (int t = 0; t < T; ++t) {
      const int8_t* four = a + static_cast<size_t>(t) * stride + 8 * j;
      const __m256i x = broadcast_four(four);
      const __m256i y = broadcast_four(four + 4);
      out[t].lo = _mm256_add_epi32(out[t].lo, _mm256_madd_epi16(even.lo, x));
      out[t].hi = _mm256_add_epi32(out[t].hi, _mm256_madd_epi16(even.hi, x));
      out[t].lo = _mm256_add_epi32(out[t].lo, _mm256_madd_epi16(odd.lo, y));
      out[t].hi = _mm256_add_epi32(out[t].hi, _mm256_madd_epi16(odd.hi, y));
      keep_order(out[t]);
    }
  }
}
template <int kPlanes, int T, int kBits, int kFirst, int kCount>
EMEL_INLINE void dot_planes(const U8 (&w)[8], const int8_t* a, size_t /*low_at*/, size_t stride, I32 (&out)[T]) {
#pragma unroll
  for (int t = 0; t < T; ++t) out[t] = i_zero();
  if constexpr (kPlanes == 2) {
    add_pairs<T, kFirst, kCount>(w, a, stride, out);
  } else if constexpr (kBits <= 6) {
    add_bytes<T, kBits, kFirst, kCount>(w, a, stride, out);
  } else {
    U8 nibbles[8];
#pragma unroll
    for (int j = kFirst; j < kFirst + kCount; ++j) nibbles[j] = u_shift_right<4>(w[j], 15);
    add_bytes<T, 4, kFirst, kCount>(nibbles, a, stride, out);
#pragma unroll
    for (int j = kFirst; j < kFirst + kCount; ++j) nibbles[j] = u_mask(w[j], 15);
#pragma unroll
    for (int t = 0; t < T; ++t) out[t] = i_shl<4>(out[t]);
    add_bytes<T, 4, kFirst, kCount>(nibbles, a, stride, out);
  }
}
template <int kPlanes, int kBits, int kFirst, int kCount>
EMEL_INLINE I32 dot_single(const U8 (&w)[8], const int8_t* a, size_t low_at) {
  I32 out[1];
  dot_planes<kPlanes, 1, kBits, kFirst, kCount>(w, a, low_at, 0, out);
  return out[0];
}

// 16 numbers of 16 bits, the second and the third of four exchanged.
EMEL_INLINE void store_joined(int8_t* p, I32 q) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(q.lo, q.hi), 0xD8);
  constexpr int kOrder = _MM_SHUFFLE(3, 1, 2, 0);
  const __m256i pairs = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, kOrder), kOrder);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), pairs);
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
