// exp and the fixed halving tree over sixteen lanes.
#pragma once

namespace emel {
namespace {

// exp(x), relative error below 2e-7 on [-87.3, 88.3]; clamped outside (a NaN gives exp(-87.3)). Cody-Waite
// reduction by ln 2 in two parts, then the Taylor polynomial of degree 7 on |r| <= ln(2)/2.
EMEL_INLINE F32 f_exp(F32 x) {
  x = f_max(x, f_set1(-87.33f));
  x = f_min(x, f_set1(88.37f));
  const F32 shifted = f_mul(x, f_set1(1.44269504f));
  const I32 n = i_round(shifted);
  const F32 nf = f_from_i(n);
  F32 r = f_fma(nf, f_set1(-0.693145752f), x);  // ln 2, 17 bits
  r = f_fma(nf, f_set1(-1.42860677e-6f), r);  // the rest of ln 2
  F32 p = f_set1(1.98412698e-4f);  // 1/7!
  p = f_fma(p, r, f_set1(1.38888889e-3f));
  p = f_fma(p, r, f_set1(8.33333333e-3f));
  p = f_fma(p, r, f_set1(4.16666667e-2f));
  p = f_fma(p, r, f_set1(1.66666667e-1f));
  p = f_fma(p, r, f_set1(0.5f));
  p = f_fma(p, r, f_set1(1.0f));
  p = f_fma(p, r, f_set1(1.0f));
  return f_bits(i_add(i_bits(p), i_shl<23>(n)));
}

EMEL_INLINE float exp_one(float x) {
  float lanes[16];
  f_store(lanes, f_exp(f_set1(x)));
  return lanes[0];
}

// Sum of the lanes: i + 8, i + 4, i + 2, i + 1.
EMEL_INLINE float tree_sum(F32 a) {
  float v[16];
  f_store(v, a);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) v[i] = v[i] + v[i + width];
  }
  return v[0];
}

// Largest lane (no NaN: the caller sees to it).
EMEL_INLINE float tree_max(F32 a) {
  float v[16];
  f_store(v, a);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) v[i] = v[i] > v[i + width] ? v[i] : v[i + width];
  }
  return v[0];
}

EMEL_INLINE bool is_finite(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (bits & 0x7f800000u) != 0x7f800000u;
}

}  // namespace
}  // namespace emel
