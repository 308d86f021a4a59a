// Passes over blocks of 64 floats, four at a time, in code of the baseline: one source for every CPU, so one result.
// Ends of arrays are filled up to a whole block with kGone.
#pragma once

#include <stdint.h>
#include <string.h>

namespace emel {

constexpr uint64_t kBlock = 64;
constexpr float kGone = -__builtin_inff();  // the logit of a token that cannot be chosen
constexpr float kLargest = 3.40282347e+38f;

inline uint64_t n_blocks_of(uint64_t n) { return (n + kBlock - 1) / kBlock; }
inline uint64_t padded(uint64_t n) { return n_blocks_of(n) * kBlock; }

namespace sample_lanes {

typedef float F4 __attribute__((vector_size(16)));
typedef int32_t I4 __attribute__((vector_size(16)));

inline F4 load(const float* x) {
  F4 v;
  memcpy(&v, x, sizeof v);
  return v;
}
inline void store(float* x, F4 v) { memcpy(x, &v, sizeof v); }
inline F4 of(float x) { return F4{x, x, x, x}; }
inline F4 max(F4 a, F4 b) { return a > b ? a : b; }

}  // namespace sample_lanes

inline float block_max(const float* x) {
  using namespace sample_lanes;
  F4 m = load(x);
  for (int i = 4; i < static_cast<int>(kBlock); i += 4) m = max(load(x + i), m);
  const float a = m[0] > m[2] ? m[0] : m[2];
  const float b = m[1] > m[3] ? m[1] : m[3];
  return a > b ? a : b;
}

// 16 interleaved partial sums and a fixed halving tree.
inline float block_sum(const float* x) {
  using namespace sample_lanes;
  F4 sum[4];
  for (int j = 0; j < 4; ++j) sum[j] = load(x + 4 * j);
  for (int i = 16; i < static_cast<int>(kBlock); i += 16) {
    for (int j = 0; j < 4; ++j) sum[j] += load(x + i + 4 * j);
  }
  const F4 s = (sum[0] + sum[2]) + (sum[1] + sum[3]);
  return (s[0] + s[2]) + (s[1] + s[3]);
}

// exp(x) of x <= 0 with a relative error below 2e-7; 0 below -87, and for kGone. Cody-Waite reduction by ln 2 in two
// parts, then Taylor to degree 7 on |r| <= ln(2)/2; products and sums round each by itself.
inline sample_lanes::F4 weight4(sample_lanes::F4 x) {
  using namespace sample_lanes;
  const I4 is_zero = x < of(-87.0f);
  x = is_zero ? of(-87.0f) : x;
  const F4 shifted = x * of(1.44269504f) + of(12582912.0f);  // 1.5 * 2^23: rounds to even, n in the low bits
  const F4 n = shifted - of(12582912.0f);
  F4 r = x - n * of(0.693145752f);  // ln 2, 17 bits: exact products
  r = r - n * of(1.42860677e-6f);  // the rest of ln 2
  F4 p = of(1.98412698e-4f);  // 1/7!
  p = p * r + of(1.38888889e-3f);
  p = p * r + of(8.33333333e-3f);
  p = p * r + of(4.16666667e-2f);
  p = p * r + of(1.66666667e-1f);
  p = p * r + of(0.5f);
  p = p * r + of(1.0f);
  p = p * r + of(1.0f);
  I4 bits, exponent;
  memcpy(&bits, &p, sizeof bits);
  memcpy(&exponent, &shifted, sizeof exponent);
  bits += exponent << 23;
  bits &= ~is_zero;
  F4 weight;
  memcpy(&weight, &bits, sizeof weight);
  return weight;
}

}  // namespace emel
