// NEON with integer dot products of signed bytes (sdot).
#pragma once

#include "lanes/neon.h"

namespace emel {
namespace {

constexpr int kTileTokens = 4;  // tokens per tile of block weights
constexpr int kChainTokens = 1;  // tokens per tile that have the planes in chains of their own (dot_single)
constexpr bool kShiftSums = false;  // weights above 127 cost more here

// The activations of a block, four columns in each of eight groups.
struct Columns {
  int8x16_t v[2];
  EMEL_INLINE_MEMBER explicit Columns(const int8_t* a) : v{vld1q_s8(a), vld1q_s8(a + 16)} {}
  // Sum over the columns of groups [kFirst, kFirst + kCount), spread over the lanes.
  template <int kFirst, int kCount>
  EMEL_INLINE_MEMBER int32x4_t sum() const {
    const int8x16_t ones = vdupq_n_s8(1);
    int32x4_t sum = vdotq_s32(vdupq_n_s32(0), v[kFirst / 4], ones);
    if constexpr (kCount == 8) sum = vdotq_s32(sum, v[1], ones);
    return sum;
  }
};

// w - 128 where w may exceed int8: what that takes away is given back by give_back, exactly.
template <int kBits, int kFirst, int kCount>
EMEL_INLINE void as_signed(const U8 (&w)[8], int8x16_t (&out)[8][4]) {
#pragma unroll
  for (int j = kFirst; j < kFirst + kCount; ++j) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      out[j][q] = vreinterpretq_s8_u8(kBits == 8 ? veorq_u8(w[j].v[q], vdupq_n_u8(128)) : w[j].v[q]);
    }
  }
}
template <int kPlanes, int kBits, int kFirst, int kCount>
EMEL_INLINE int32x4_t give_back(const int8_t* high, size_t low_at) {
  if constexpr (kBits < 8) return vdupq_n_s32(0);
  int32x4_t sums = Columns(high).sum<kFirst, kCount>();
  if constexpr (kPlanes == 2) sums = join_planes(sums, Columns(high + low_at).sum<kFirst, kCount>());
  return vshlq_n_s32(vdupq_n_s32(vaddvq_s32(sums)), 7);
}

// Group j of the columns and those after it, for T tokens; a lane of an instruction must be a constant.
template <int T, int j, int kEnd>
EMEL_INLINE void add_groups(const int8x16_t (&w)[8][4], const Columns (&a)[T], I32 (&out)[T]) {
  if constexpr (j < kEnd) {
#pragma unroll
    for (int t = 0; t < T; ++t) {
#pragma unroll
      for (int q = 0; q < 4; ++q) out[t].v[q] = vdotq_laneq_s32(out[t].v[q], w[j][q], a[t].v[j / 4], j % 4);
    }
    add_groups<T, j + 1, kEnd>(w, a, out);
  }
}
template <int T, int kFirst, int kCount>
EMEL_INLINE void add_plane(const int8x16_t (&w)[8][4], const int8_t* a, size_t stride, I32 (&out)[T]) {
  if constexpr (T == 1) {
    const Columns columns[1] = {Columns(a)};
    add_groups<1, kFirst, kFirst + kCount>(w, columns, out);
  } else if constexpr (T == 2) {
    const Columns columns[2] = {Columns(a), Columns(a + stride)};
    add_groups<2, kFirst, kFirst + kCount>(w, columns, out);
  } else {
    static_assert(T == 4);
    const Columns columns[4] = {Columns(a), Columns(a + stride), Columns(a + 2 * stride), Columns(a + 3 * stride)};
    add_groups<4, kFirst, kFirst + kCount>(w, columns, out);
  }
}

template <int kPlanes, int T, int kBits, int kFirst, int kCount>
EMEL_INLINE void dot_planes(const U8 (&w)[8], const int8_t* a, size_t low_at, size_t stride, I32 (&out)[T]) {
  int8x16_t weights[8][4];
  as_signed<kBits, kFirst, kCount>(w, weights);
  if constexpr (kPlanes == 1) {
#pragma unroll
    for (int t = 0; t < T; ++t) {
      const int32x4_t start = give_back<1, kBits, kFirst, kCount>(a + static_cast<size_t>(t) * stride, 0);
      out[t] = {{start, start, start, start}};
    }
    return add_plane<T, kFirst, kCount>(weights, a, stride, out);
  }
#pragma unroll
  for (int t = 0; t < T; ++t) out[t] = i_zero();
  add_plane<T, kFirst, kCount>(weights, a, stride, out);
#pragma unroll
  for (int t = 0; t < T; ++t) {
    const int32x4_t start = give_back<2, kBits, kFirst, kCount>(a + static_cast<size_t>(t) * stride, low_at);
#pragma unroll
    for (int q = 0; q < 4; ++q) out[t].v[q] = join_planes(out[t].v[q], start);
  }
  add_plane<T, kFirst, kCount>(weights, a + low_at, stride, out);
}
// The planes in chains of their own, so that neither waits for the other.
template <int kPlanes, int kBits, int kFirst, int kCount>
EMEL_INLINE I32 dot_single(const U8 (&w)[8], const int8_t* a, size_t low_at) {
  int8x16_t weights[8][4];
  as_signed<kBits, kFirst, kCount>(w, weights);
  const int32x4_t start = give_back<kPlanes, kBits, kFirst, kCount>(a, low_at);
  I32 high[1] = {i_zero()};
  I32 low[1] = {{{start, start, start, start}}};
  if constexpr (kPlanes == 1) {
    add_plane<1, kFirst, kCount>(weights, a, 0, low);
    return low[0];
  }
  add_plane<1, kFirst, kCount>(weights, a, 0, high);
  add_plane<1, kFirst, kCount>(weights, a + low_at, 0, low);
#pragma unroll
  for (int q = 0; q < 4; ++q) low[0].v[q] = join_planes(high[0].v[q], low[0].v[q]);
  return low[0];
}

// ---- peaks (kernels/roofline.h)

#define EMEL_HAS_PEAKS 1
constexpr int kPeakChains = 5;

EMEL_INLINE I32 peak_dot_step(I32 sum, U8& w, U8 a) {
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    sum.v[q] = vdotq_s32(sum.v[q], vreinterpretq_s8_u8(w.v[q]), vreinterpretq_s8_u8(a.v[q]));
  }
  return sum;
}

}  // namespace
}  // namespace emel
