// AVX2 with integer dot products of unsigned and signed bytes (vpdpbusd) in 256 bits.
#pragma once

#include "lanes/avx2.h"

namespace emel {
namespace {

constexpr bool kFetchesAll = false;  // blocks for one token, too, are asked for far ahead (kernels/fetch.h)
constexpr int kTileTokens = 4;  // tokens per tile of block weights
constexpr int kChainTokens = 1;  // tokens per tile that have the planes in chains of their own (dot_single)
constexpr bool kShiftSums = true;  // fields of two bits are shifted down in the sums, not in the weights

// The same instruction has two encodings: VEX on CPUs without AVX-512, EVEX on those with it. The library is built with
// the first; the digest program also with the second, so that CPUs with AVX-512 VNNI can check this file.
EMEL_INLINE __m256i add_products(__m256i sum, __m256i w, __m256i a) {
#if defined(EMEL_EVEX_VNNI)
  return _mm256_dpbusd_epi32(sum, w, a);
#else
  return _mm256_dpbusd_avx_epi32(sum, w, a);
#endif
}
// 255 * high + low.
EMEL_INLINE __m256i join_planes(__m256i high, __m256i low) {
  return _mm256_add_epi32(_mm256_sub_epi32(_mm256_slli_epi32(high, 8), high), low);
}

template <int T, int kFirst, int kCount>
EMEL_INLINE void add_plane(const U8 (&w)[8], const int8_t* a, size_t stride, I32 (&out)[T]) {
#pragma unroll
  for (int j = kFirst; j < kFirst + kCount; ++j) {
#pragma unroll
    for (int t = 0; t < T; ++t) {
      const __m256i x = broadcast_four(a + static_cast<size_t>(t) * stride + 4 * j);
      out[t] = {add_products(out[t].lo, w[j].lo, x), add_products(out[t].hi, w[j].hi, x)};
    }
  }
}
template <int kPlanes, int T, int kBits, int kFirst, int kCount>
EMEL_INLINE void dot_planes(const U8 (&w)[8], const int8_t* a, size_t low_at, size_t stride, I32 (&out)[T]) {
#pragma unroll
  for (int t = 0; t < T; ++t) out[t] = i_zero();
  add_plane<T, kFirst, kCount>(w, a, stride, out);
  if constexpr (kPlanes == 1) return;
  const __m256i none = _mm256_setzero_si256();
#pragma unroll
  for (int t = 0; t < T; ++t) out[t] = {join_planes(out[t].lo, none), join_planes(out[t].hi, none)};
  add_plane<T, kFirst, kCount>(w, a + low_at, stride, out);
}
// The planes in chains of their own, so that neither waits for the other.
template <int kPlanes, int kBits, int kFirst, int kCount>
EMEL_INLINE I32 dot_single(const U8 (&w)[8], const int8_t* a, size_t low_at) {
  I32 high = i_zero();
  I32 low = i_zero();
#pragma unroll
  for (int j = kFirst; j < kFirst + kCount; ++j) {
    const __m256i x = broadcast_four(a + 4 * j);
    high = {add_products(high.lo, w[j].lo, x), add_products(high.hi, w[j].hi, x)};
    if constexpr (kPlanes == 1) continue;
    const __m256i y = broadcast_four(a + low_at + 4 * j);
    low = {add_products(low.lo, w[j].lo, y), add_products(low.hi, w[j].hi, y)};
  }
  if constexpr (kPlanes == 1) return high;
  return {join_planes(high.lo, low.lo), join_planes(high.hi, low.hi)};
}

// ---- peaks (kernels/roofline.h)

#define EMEL_HAS_PEAKS 1
constexpr int kPeakChains = 6;

EMEL_INLINE I32 peak_dot_step(I32 sum, U8& w, U8 a) {
  return {add_products(sum.lo, w.lo, a.lo), add_products(sum.hi, w.hi, a.hi)};
}

}  // namespace
}  // namespace emel
