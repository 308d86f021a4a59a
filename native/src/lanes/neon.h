// Sixteen lanes in four 128-bit registers. The integer dot products are in neon_dot.h and neon_i8mm.h.
#pragma once

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EMEL_INLINE static inline __attribute__((always_inline))
#define EMEL_INLINE_MEMBER inline __attribute__((always_inline))

namespace emel {
namespace {

struct F32 {
  float32x4_t v[4];
};
struct I32 {
  int32x4_t v[4];
};

// Tile shapes that fit the register file: 32 registers.
constexpr bool kFetchesAll = false;  // blocks for one token, too, are asked for far ahead (kernels/fetch.h)
constexpr int kFloatTokens = 1;  // tokens per tile with float weights
constexpr int kFloatPartials = 4;  // of their four sums over k at once, 2 or 4
constexpr int kScoreRows = 6;  // query rows and blocks of keys per tile of attention scores
constexpr int kScoreBlocks = 1;
constexpr int kValueRows = 6;  // query rows and vectors of a head per tile of attention values
constexpr int kValueVectors = 1;

// The four quarters of a result, each an expression of q. Not a loop: thousands of them would make compiling take minutes.
#define EMEL_QUARTER(number, expression) \
  {                                      \
    constexpr int q = number;            \
    r.v[q] = expression;                 \
  }
#define EMEL_QUARTERS(type, expression) \
  type r;                               \
  EMEL_QUARTER(0, expression)           \
  EMEL_QUARTER(1, expression)           \
  EMEL_QUARTER(2, expression)           \
  EMEL_QUARTER(3, expression)           \
  return r

EMEL_INLINE F32 f_load(const float* p) { EMEL_QUARTERS(F32, vld1q_f32(p + 4 * q)); }
EMEL_INLINE void f_store(float* p, F32 a) {
#pragma unroll
  for (int q = 0; q < 4; ++q) vst1q_f32(p + 4 * q, a.v[q]);
}
EMEL_INLINE F32 f_load_n(const float* p, int n) {
  float lanes[16] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return f_load(lanes);
}
EMEL_INLINE void f_store_n(float* p, F32 a, int n) {
  float lanes[16];
  f_store(lanes, a);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}
EMEL_INLINE F32 f_set1(float x) { EMEL_QUARTERS(F32, vdupq_n_f32(x)); }
EMEL_INLINE F32 f_zero() { return f_set1(0.0f); }
EMEL_INLINE F32 f_add(F32 a, F32 b) { EMEL_QUARTERS(F32, vaddq_f32(a.v[q], b.v[q])); }
EMEL_INLINE F32 f_sub(F32 a, F32 b) { EMEL_QUARTERS(F32, vsubq_f32(a.v[q], b.v[q])); }
EMEL_INLINE F32 f_mul(F32 a, F32 b) { EMEL_QUARTERS(F32, vmulq_f32(a.v[q], b.v[q])); }
EMEL_INLINE F32 f_div(F32 a, F32 b) { EMEL_QUARTERS(F32, vdivq_f32(a.v[q], b.v[q])); }
// b where either is NaN, as the specification has it; fmax and fmin would give a NaN.
EMEL_INLINE F32 f_max(F32 a, F32 b) { EMEL_QUARTERS(F32, vbslq_f32(vcgtq_f32(a.v[q], b.v[q]), a.v[q], b.v[q])); }
EMEL_INLINE F32 f_min(F32 a, F32 b) { EMEL_QUARTERS(F32, vbslq_f32(vcltq_f32(a.v[q], b.v[q]), a.v[q], b.v[q])); }
EMEL_INLINE F32 f_fma(F32 a, F32 b, F32 c) { EMEL_QUARTERS(F32, vfmaq_f32(c.v[q], a.v[q], b.v[q])); }
EMEL_INLINE void f_keep_order(F32&) {}  // there are registers enough
EMEL_INLINE F32 f_load_f16(const uint16_t* p) {
  EMEL_QUARTERS(F32, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * q))));
}
EMEL_INLINE void f_store_f16(uint16_t* p, F32 a) {
#pragma unroll
  for (int q = 0; q < 4; ++q) vst1_u16(p + 4 * q, vreinterpret_u16_f16(vcvt_f16_f32(a.v[q])));
}
EMEL_INLINE F32 f_from_i(I32 a) { EMEL_QUARTERS(F32, vcvtq_f32_s32(a.v[q])); }
EMEL_INLINE I32 i_round(F32 a) { EMEL_QUARTERS(I32, vcvtnq_s32_f32(a.v[q])); }
EMEL_INLINE I32 i_bits(F32 a) { EMEL_QUARTERS(I32, vreinterpretq_s32_f32(a.v[q])); }
EMEL_INLINE F32 f_bits(I32 a) { EMEL_QUARTERS(F32, vreinterpretq_f32_s32(a.v[q])); }
EMEL_INLINE I32 i_set1(int32_t x) { EMEL_QUARTERS(I32, vdupq_n_s32(x)); }
EMEL_INLINE I32 i_zero() { return i_set1(0); }
EMEL_INLINE I32 i_add(I32 a, I32 b) { EMEL_QUARTERS(I32, vaddq_s32(a.v[q], b.v[q])); }
EMEL_INLINE I32 i_sub(I32 a, I32 b) { EMEL_QUARTERS(I32, vsubq_s32(a.v[q], b.v[q])); }
EMEL_INLINE I32 i_and(I32 a, I32 b) { EMEL_QUARTERS(I32, vandq_s32(a.v[q], b.v[q])); }
EMEL_INLINE I32 i_max(I32 a, I32 b) { EMEL_QUARTERS(I32, vmaxq_s32(a.v[q], b.v[q])); }
template <int kBits>
EMEL_INLINE I32 i_shl(I32 a) {
  EMEL_QUARTERS(I32, vshlq_n_s32(a.v[q], kBits));
}
template <int kBits>
EMEL_INLINE I32 i_shr(I32 a) {
  EMEL_QUARTERS(I32, vshrq_n_s32(a.v[q], kBits));
}
EMEL_INLINE void i_store_i8(int8_t* p, I32 a) {
  const int16x8_t low = vcombine_s16(vmovn_s32(a.v[0]), vmovn_s32(a.v[1]));
  const int16x8_t high = vcombine_s16(vmovn_s32(a.v[2]), vmovn_s32(a.v[3]));
  vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}
EMEL_INLINE int32_t i_reduce_add(I32 a) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(a.v[0], a.v[1]), vaddq_s32(a.v[2], a.v[3])));
}
EMEL_INLINE int32_t i_reduce_max(I32 a) {
  return vmaxvq_s32(vmaxq_s32(vmaxq_s32(a.v[0], a.v[1]), vmaxq_s32(a.v[2], a.v[3])));
}
EMEL_INLINE uint32_t f_equal_mask(F32 a, F32 b) {
  constexpr uint32_t kLaneBits[4] = {1, 2, 4, 8};
  const uint32x4_t lane_bits = vld1q_u32(kLaneBits);
  uint32_t mask = 0;
#pragma unroll
  for (int q = 0; q < 4; ++q) mask |= vaddvq_u32(vandq_u32(vceqq_f32(a.v[q], b.v[q]), lane_bits)) << (4 * q);
  return mask;
}

EMEL_INLINE F32 f_load_bf16(const uint16_t* p) {
  EMEL_QUARTERS(F32, vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * q), 16)));
}
EMEL_INLINE F32 f_load_i8(const uint8_t* p) {
  const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(p));
  const int16x8_t halves[2] = {vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes)};
  EMEL_QUARTERS(F32,
                vcvtq_f32_s32(q % 2 == 0 ? vmovl_s16(vget_low_s16(halves[q / 2])) : vmovl_high_s16(halves[q / 2])));
}
EMEL_INLINE F32 f_from_u8(uint8x16_t bytes) {
  const uint16x8_t halves[2] = {vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes)};
  EMEL_QUARTERS(F32,
                vcvtq_f32_u32(q % 2 == 0 ? vmovl_u16(vget_low_u16(halves[q / 2])) : vmovl_high_u16(halves[q / 2])));
}
EMEL_INLINE F32 f_load_u8(const uint8_t* p) { return f_from_u8(vld1q_u8(p)); }
EMEL_INLINE F32 f_load_low_nibbles(const uint8_t* p) { return f_from_u8(vandq_u8(vld1q_u8(p), vdupq_n_u8(15))); }
EMEL_INLINE F32 f_load_high_nibbles(const uint8_t* p) { return f_from_u8(vshrq_n_u8(vld1q_u8(p), 4)); }
EMEL_INLINE F32 f_load_twice(const float* p) {
  const float32x4_t lo = vld1q_f32(p);
  const float32x4_t hi = vld1q_f32(p + 4);
  return {{vzip1q_f32(lo, lo), vzip2q_f32(lo, lo), vzip1q_f32(hi, hi), vzip2q_f32(hi, hi)}};
}

EMEL_INLINE F32 f_swap_pairs(F32 a) { EMEL_QUARTERS(F32, vrev64q_f32(a.v[q])); }
EMEL_INLINE F32 f_first_n(F32 a, F32 b, int n) {
  float lanes[16];
  f_store(lanes, b);
  f_store_n(lanes, a, n);
  return f_load(lanes);
}

// ---- 64 bytes: four elements of each of 16 rows, four rows in a register

struct U8 {
  uint8x16_t v[4];
};

EMEL_INLINE U8 u_load(const uint8_t* p) { EMEL_QUARTERS(U8, vld1q_u8(p + 16 * q)); }
EMEL_INLINE U8 u_mask(U8 a, uint8_t mask) { EMEL_QUARTERS(U8, vandq_u8(a.v[q], vdupq_n_u8(mask))); }
EMEL_INLINE U8 u_or(U8 a, U8 b) { EMEL_QUARTERS(U8, vorrq_u8(a.v[q], b.v[q])); }
template <int kBits>
EMEL_INLINE U8 u_shift_right(U8 a, uint8_t mask) {
  if constexpr (kBits == 0) {  // which the instruction cannot encode
    return u_mask(a, mask);
  } else {
    EMEL_QUARTERS(U8, vandq_u8(vshrq_n_u8(a.v[q], kBits), vdupq_n_u8(mask)));
  }
}
template <int kBits>
EMEL_INLINE U8 u_shift_left(U8 a, uint8_t mask) {
  EMEL_QUARTERS(U8, vandq_u8(vshlq_n_u8(a.v[q], kBits), vdupq_n_u8(mask)));
}
EMEL_INLINE U8 u_lookup(const uint8_t* table, U8 nibbles) {
  const uint8x16_t values = vld1q_u8(table);
  EMEL_QUARTERS(U8, vqtbl1q_u8(values, nibbles.v[q]));
}

#undef EMEL_QUARTERS
#undef EMEL_QUARTER

// 255 * high + low.
EMEL_INLINE int32x4_t join_planes(int32x4_t high, int32x4_t low) {
  return vaddq_s32(vsubq_s32(vshlq_n_s32(high, 8), high), low);
}

}  // namespace
}  // namespace emel
