// Sixteen lanes in plain C++: the specification the other instruction sets equal bit for bit.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/half.h"

#define EMEL_INLINE static inline __attribute__((always_inline))
#define EMEL_INLINE_MEMBER inline __attribute__((always_inline))
#define EMEL_LANES for (int lane = 0; lane < 16; ++lane)

namespace emel {
namespace {

struct F32 {
  float v[16];
};
struct I32 {
  int32_t v[16];
};

// Tile shapes that fit the register file: tokens per tile of block weights.
constexpr bool kFetchesAll = false;  // blocks for one token, too, are asked for far ahead (kernels/fetch.h)
constexpr int kTileTokens = 1;
constexpr int kChainTokens = 1;  // tokens per tile that have the planes in chains of their own (dot_single)
constexpr bool kShiftSums = false;  // fields of two bits are shifted down in the sums, not in the weights
constexpr int kFloatTokens = 1;  // tokens per tile with float weights
constexpr int kFloatPartials = 4;  // of their four sums over k at once, 2 or 4
constexpr int kScoreRows = 1;  // query rows and blocks of keys per tile of attention scores
constexpr int kScoreBlocks = 1;
constexpr int kValueRows = 1;  // query rows and vectors of a head per tile of attention values
constexpr int kValueVectors = 1;

EMEL_INLINE F32 f_load(const float* p) {
  F32 r;
  memcpy(r.v, p, sizeof r.v);
  return r;
}
EMEL_INLINE void f_store(float* p, F32 a) { memcpy(p, a.v, sizeof a.v); }
EMEL_INLINE F32 f_load_n(const float* p, int n) {
  F32 r;
  EMEL_LANES r.v[lane] = lane < n ? p[lane] : 0.0f;
  return r;
}
EMEL_INLINE void f_store_n(float* p, F32 a, int n) {
  for (int lane = 0; lane < n; ++lane) p[lane] = a.v[lane];
}
EMEL_INLINE F32 f_set1(float x) {
  F32 r;
  EMEL_LANES r.v[lane] = x;
  return r;
}
EMEL_INLINE F32 f_zero() { return f_set1(0.0f); }
#define EMEL_F_BINARY(name, expression) \
  EMEL_INLINE F32 name(F32 a, F32 b) {  \
    F32 r;                              \
    EMEL_LANES {                        \
      const float x = a.v[lane];        \
      const float y = b.v[lane];        \
      r.v[lane] = expression;           \
    }                                   \
    return r;                           \
  }
EMEL_F_BINARY(f_add, x + y)
EMEL_F_BINARY(f_sub, x - y)
EMEL_F_BINARY(f_mul, x* y)
EMEL_F_BINARY(f_div, x / y)
EMEL_F_BINARY(f_max, x > y ? x : y)
EMEL_F_BINARY(f_min, x < y ? x : y)
#undef EMEL_F_BINARY
EMEL_INLINE F32 f_fma(F32 a, F32 b, F32 c) {
  F32 r;
  EMEL_LANES r.v[lane] = __builtin_fmaf(a.v[lane], b.v[lane], c.v[lane]);
  return r;
}
EMEL_INLINE void f_keep_order(F32&) {}  // there are registers enough
EMEL_INLINE F32 f_load_f16(const uint16_t* p) {
  F32 r;
  EMEL_LANES r.v[lane] = half_to_float(p[lane]);
  return r;
}
EMEL_INLINE void f_store_f16(uint16_t* p, F32 a) { EMEL_LANES p[lane] = float_to_half(a.v[lane]); }
EMEL_INLINE F32 f_from_i(I32 a) {
  F32 r;
  EMEL_LANES r.v[lane] = static_cast<float>(a.v[lane]);
  return r;
}
// Round half to even; |x| < 2^22.
EMEL_INLINE I32 i_round(F32 a) {
  I32 r;
  EMEL_LANES r.v[lane] = static_cast<int32_t>((a.v[lane] + 12582912.0f) - 12582912.0f);
  return r;
}
EMEL_INLINE I32 i_bits(F32 a) {
  I32 r;
  memcpy(r.v, a.v, sizeof r.v);
  return r;
}
EMEL_INLINE F32 f_bits(I32 a) {
  F32 r;
  memcpy(r.v, a.v, sizeof r.v);
  return r;
}
EMEL_INLINE I32 i_set1(int32_t x) {
  I32 r;
  EMEL_LANES r.v[lane] = x;
  return r;
}
EMEL_INLINE I32 i_zero() { return i_set1(0); }
#define EMEL_I_BINARY(name, expression) \
  EMEL_INLINE I32 name(I32 a, I32 b) {  \
    I32 r;                              \
    EMEL_LANES {                        \
      const int32_t x = a.v[lane];      \
      const int32_t y = b.v[lane];      \
      r.v[lane] = expression;           \
    }                                   \
    return r;                           \
  }
EMEL_I_BINARY(i_add, x + y)
EMEL_I_BINARY(i_sub, x - y)
EMEL_I_BINARY(i_and, x& y)
EMEL_I_BINARY(i_max, x > y ? x : y)
#undef EMEL_I_BINARY
template <int kBits>
EMEL_INLINE I32 i_shl(I32 a) {
  I32 r;
  EMEL_LANES r.v[lane] = static_cast<int32_t>(static_cast<uint32_t>(a.v[lane]) << kBits);
  return r;
}
// Arithmetic: the sign stays.
template <int kBits>
EMEL_INLINE I32 i_shr(I32 a) {
  I32 r;
  EMEL_LANES r.v[lane] = a.v[lane] >> kBits;
  return r;
}
EMEL_INLINE void i_store_i8(int8_t* p, I32 a) { EMEL_LANES p[lane] = static_cast<int8_t>(a.v[lane]); }
EMEL_INLINE int32_t i_reduce_add(I32 a) {
  int32_t sum = 0;
  EMEL_LANES sum += a.v[lane];
  return sum;
}
EMEL_INLINE int32_t i_reduce_max(I32 a) {
  int32_t largest = a.v[0];
  EMEL_LANES largest = a.v[lane] > largest ? a.v[lane] : largest;
  return largest;
}
// Bit i set where a == b in lane i.
EMEL_INLINE uint32_t f_equal_mask(F32 a, F32 b) {
  uint32_t mask = 0;
  EMEL_LANES mask |= static_cast<uint32_t>(a.v[lane] == b.v[lane]) << lane;
  return mask;
}

EMEL_INLINE F32 f_load_bf16(const uint16_t* p) {
  I32 bits;
  EMEL_LANES bits.v[lane] = static_cast<int32_t>(static_cast<uint32_t>(p[lane]) << 16);
  return f_bits(bits);
}
EMEL_INLINE F32 f_load_i8(const uint8_t* p) {
  F32 r;
  EMEL_LANES r.v[lane] = static_cast<float>(static_cast<int8_t>(p[lane]));
  return r;
}
EMEL_INLINE F32 f_load_u8(const uint8_t* p) {
  F32 r;
  EMEL_LANES r.v[lane] = static_cast<float>(p[lane]);
  return r;
}
EMEL_INLINE F32 f_load_low_nibbles(const uint8_t* p) {
  F32 r;
  EMEL_LANES r.v[lane] = static_cast<float>(p[lane] & 15);
  return r;
}
EMEL_INLINE F32 f_load_high_nibbles(const uint8_t* p) {
  F32 r;
  EMEL_LANES r.v[lane] = static_cast<float>(p[lane] >> 4);
  return r;
}
// Lanes 2 i and 2 i + 1 are p[i].
EMEL_INLINE F32 f_load_twice(const float* p) {
  F32 r;
  EMEL_LANES r.v[lane] = p[lane / 2];
  return r;
}

EMEL_INLINE F32 f_swap_pairs(F32 a) {
  F32 r;
  EMEL_LANES r.v[lane] = a.v[lane ^ 1];
  return r;
}
// Lanes before n from a, the others from b.
EMEL_INLINE F32 f_first_n(F32 a, F32 b, int n) {
  F32 r;
  EMEL_LANES r.v[lane] = lane < n ? a.v[lane] : b.v[lane];
  return r;
}

// ---- 64 bytes: four elements of each of 16 rows

struct U8 {
  uint8_t v[64];
};
#define EMEL_BYTES for (int byte = 0; byte < 64; ++byte)

EMEL_INLINE U8 u_load(const uint8_t* p) {
  U8 r;
  memcpy(r.v, p, sizeof r.v);
  return r;
}
EMEL_INLINE U8 u_mask(U8 a, uint8_t mask) {
  U8 r;
  EMEL_BYTES r.v[byte] = a.v[byte] & mask;
  return r;
}
EMEL_INLINE U8 u_or(U8 a, U8 b) {
  U8 r;
  EMEL_BYTES r.v[byte] = a.v[byte] | b.v[byte];
  return r;
}
// (a >> kBits) & mask and (a << kBits) & mask, byte by byte.
template <int kBits>
EMEL_INLINE U8 u_shift_right(U8 a, uint8_t mask) {
  U8 r;
  EMEL_BYTES r.v[byte] = static_cast<uint8_t>(a.v[byte] >> kBits) & mask;
  return r;
}
template <int kBits>
EMEL_INLINE U8 u_shift_left(U8 a, uint8_t mask) {
  U8 r;
  EMEL_BYTES r.v[byte] = static_cast<uint8_t>(a.v[byte] << kBits) & mask;
  return r;
}
EMEL_INLINE U8 u_lookup(const uint8_t* table, U8 nibbles) {
  U8 r;
  EMEL_BYTES r.v[byte] = table[nibbles.v[byte]];
  return r;
}

// out[t] = sum over vectors [kFirst, kFirst + kCount) of w[row] * q[t], q being 255 * high + low in two planes, and what
// stands there in one; a points at the first of the block's 32 high parts, low lies low_at bytes after high, tokens lie
// stride bytes apart. w < 2^kBits.
template <int kPlanes, int T, int kBits, int kFirst, int kCount>
EMEL_INLINE void dot_planes(const U8 (&w)[8], const int8_t* a, size_t low_at, size_t stride, I32 (&out)[T]) {
  for (int t = 0; t < T; ++t) {
    const int8_t* high = a + t * stride;
    const int8_t* low = high + low_at;
    EMEL_LANES {
      int32_t sum = 0;
      for (int j = 4 * kFirst; j < 4 * (kFirst + kCount); ++j) {
        sum += w[j / 4].v[lane * 4 + j % 4] * (kPlanes == 1 ? high[j] : 255 * high[j] + low[j]);
      }
      out[t].v[lane] = sum;
    }
  }
}
// The same for one token, arranged for latency.
template <int kPlanes, int kBits, int kFirst, int kCount>
EMEL_INLINE I32 dot_single(const U8 (&w)[8], const int8_t* a, size_t low_at) {
  I32 out[1];
  dot_planes<kPlanes, 1, kBits, kFirst, kCount>(w, a, low_at, 0, out);
  return out[0];
}

}  // namespace
}  // namespace emel
