// NEON with products of unsigned and signed bytes: by dot products (usdot) for one token, by matrices of two rows and
// two tokens (usmmla, twice the products per instruction) for more.
#pragma once

#include "lanes/neon.h"

namespace emel {
namespace {

constexpr int kTileTokens = 4;  // tokens per tile of block weights
constexpr int kChainTokens = 1;  // tokens per tile that have the planes in chains of their own (dot_single)
constexpr bool kShiftSums = true;  // fields of two bits are shifted down in the sums, not in the weights

// Columns [4 * j, 4 * j + 4) of one token and those after them; a lane of an instruction must be a constant.
template <int j, int kEnd>
EMEL_INLINE void add_groups(const U8 (&w)[8], const int8_t* a, I32& out) {
  if constexpr (j < kEnd) {
    const int8x16_t columns = vld1q_s8(a + 16 * (j / 4));
#pragma unroll
    for (int q = 0; q < 4; ++q) out.v[q] = vusdotq_laneq_s32(out.v[q], w[j].v[q], columns, j % 4);
    add_groups<j + 1, kEnd>(w, a, out);
  }
}
// The planes in chains of their own, so that neither waits for the other.
template <int kPlanes, int kBits, int kFirst, int kCount>
EMEL_INLINE I32 dot_single(const U8 (&w)[8], const int8_t* a, size_t low_at) {
  I32 high = i_zero();
  I32 low = i_zero();
  add_groups<kFirst, kFirst + kCount>(w, a, high);
  if constexpr (kPlanes == 1) return high;
  add_groups<kFirst, kFirst + kCount>(w, a + low_at, low);
#pragma unroll
  for (int q = 0; q < 4; ++q) low.v[q] = join_planes(high.v[q], low.v[q]);
  return low;
}

// Eight columns of 16 rows, two rows in a register, from two vectors of four columns each.
struct RowPairs {
  uint8x16_t v[8];
};
EMEL_INLINE RowPairs row_pairs(const U8& first, const U8& second) {
  RowPairs r;
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    const uint32x4_t a = vreinterpretq_u32_u8(first.v[q]);
    const uint32x4_t b = vreinterpretq_u32_u8(second.v[q]);
    r.v[2 * q] = vreinterpretq_u8_u32(vzip1q_u32(a, b));
    r.v[2 * q + 1] = vreinterpretq_u8_u32(vzip2q_u32(a, b));
  }
  return r;
}

// Products of two tokens with two rows: {row, next row} x {token, next token}, eight pairs of rows.
struct PairSums {
  int32x4_t v[8];
};

// Eight columns from column kAt on, of two tokens.
template <int kAt>
EMEL_INLINE int8x16_t two_tokens(const int8_t* a, size_t stride) {
  return vcombine_s8(vld1_s8(a + kAt), vld1_s8(a + kAt + stride));
}

template <int P, int p, int kEnd>
EMEL_INLINE void add_pairs(const RowPairs (&w)[4], const int8_t* a, size_t stride, PairSums (&sums)[P]) {
  if constexpr (p < kEnd) {
    int8x16_t columns[P];
#pragma unroll
    for (int t = 0; t < P; ++t) columns[t] = two_tokens<8 * p>(a + 2 * static_cast<size_t>(t) * stride, stride);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int t = 0; t < P; ++t) sums[t].v[i] = vusmmlaq_s32(sums[t].v[i], w[p].v[i], columns[t]);
    }
    add_pairs<P, p + 1, kEnd>(w, a, stride, sums);
  }
}

template <int kPlanes, int T, int kFirst, int kCount>
EMEL_INLINE void pair_planes(const U8 (&w)[8], const int8_t* a, size_t low_at, size_t stride, I32 (&out)[T]) {
  constexpr int kPairs = T / 2;
  RowPairs rows[4];
#pragma unroll
  for (int p = kFirst / 2; p < (kFirst + kCount) / 2; ++p) rows[p] = row_pairs(w[2 * p], w[2 * p + 1]);
  PairSums sums[kPairs];
#pragma unroll
  for (int t = 0; t < kPairs; ++t) {
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[t].v[i] = vdupq_n_s32(0);
  }
  add_pairs<kPairs, kFirst / 2, (kFirst + kCount) / 2>(rows, a, stride, sums);
  if constexpr (kPlanes == 2) {
#pragma unroll
    for (int t = 0; t < kPairs; ++t) {
#pragma unroll
      for (int i = 0; i < 8; ++i) sums[t].v[i] = join_planes(sums[t].v[i], vdupq_n_s32(0));
    }
    add_pairs<kPairs, kFirst / 2, (kFirst + kCount) / 2>(rows, a + low_at, stride, sums);
  }
#pragma unroll
  for (int t = 0; t < kPairs; ++t) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      out[2 * t].v[q] = vuzp1q_s32(sums[t].v[2 * q], sums[t].v[2 * q + 1]);
      out[2 * t + 1].v[q] = vuzp2q_s32(sums[t].v[2 * q], sums[t].v[2 * q + 1]);
    }
  }
}

template <int kPlanes, int T, int kBits, int kFirst, int kCount>
EMEL_INLINE void dot_planes(const U8 (&w)[8], const int8_t* a, size_t low_at, size_t stride, I32 (&out)[T]) {
  if constexpr (T == 1) {
    out[0] = dot_single<kPlanes, kBits, kFirst, kCount>(w, a, low_at);
  } else {
    static_assert(T % 2 == 0);
    pair_planes<kPlanes, T, kFirst, kCount>(w, a, low_at, stride, out);
  }
}

// ---- peaks (kernels/roofline.h)

#define EMEL_HAS_PEAKS 1
constexpr int kPeakChains = 6;

// 64 multiply-adds are two matrix products.
EMEL_INLINE I32 peak_dot_step(I32 sum, U8& w, U8 a) {
#pragma unroll
  for (int q = 0; q < 2; ++q) sum.v[q] = vusmmlaq_s32(sum.v[q], w.v[q], vreinterpretq_s8_u8(a.v[q]));
  return sum;
}

}  // namespace
}  // namespace emel
