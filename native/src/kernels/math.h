// exp, tanh, activations, and the fixed halving tree over sixteen lanes.
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

// tanh(x), relative error below 5e-7; a NaN gives -1. expm1(2x) / (expm1(2x) + 2), where e^r - 1 is f_exp's polynomial
// without its last term, so that nothing cancels near 0.
EMEL_INLINE F32 f_tanh(F32 x) {
  x = f_max(f_add(x, x), f_set1(-20.0f));
  x = f_min(x, f_set1(20.0f));
  const I32 n = i_round(f_mul(x, f_set1(1.44269504f)));
  const F32 nf = f_from_i(n);
  F32 r = f_fma(nf, f_set1(-0.693145752f), x);
  r = f_fma(nf, f_set1(-1.42860677e-6f), r);
  F32 p = f_set1(1.98412698e-4f);
  p = f_fma(p, r, f_set1(1.38888889e-3f));
  p = f_fma(p, r, f_set1(8.33333333e-3f));
  p = f_fma(p, r, f_set1(4.16666667e-2f));
  p = f_fma(p, r, f_set1(1.66666667e-1f));
  p = f_fma(p, r, f_set1(0.5f));
  p = f_fma(p, r, f_set1(1.0f));
  const F32 power = f_bits(i_shl<23>(i_add(n, i_set1(127))));
  const F32 less_one = f_fma(f_mul(p, r), power, f_sub(power, f_set1(1.0f)));
  return f_div(less_one, f_add(less_one, f_set1(2.0f)));
}

// x / (1 + exp(-x)).
EMEL_INLINE F32 f_silu(F32 x) { return f_div(x, f_add(f_set1(1.0f), f_exp(f_sub(f_zero(), x)))); }

// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel 2016, arXiv:1606.08415), as
// (1 + tanh u) / 2 = 1 / (1 + exp(-2u)).
EMEL_INLINE F32 f_gelu_tanh(F32 x) {
  const F32 inner = f_fma(f_mul(x, x), f_set1(-0.0713548163f), f_set1(-1.59576912f));
  return f_div(x, f_add(f_set1(1.0f), f_exp(f_mul(x, inner))));
}

// x Phi(x) = max(x, 0) - |x| Phi(-|x|). Phi(-z) = erfc(z / sqrt 2) / 2 by formula 7.1.26 of Abramowitz and Stegun,
// Handbook of Mathematical Functions (1964): |error| of erf below 1.5e-7, none of it where erfc has vanished.
EMEL_INLINE F32 f_gelu_erf(F32 x) {
  const F32 size = f_bits(i_and(i_bits(x), i_set1(0x7fffffff)));
  const F32 t = f_div(f_set1(1.0f), f_fma(size, f_set1(0.3275911f * 0.707106781f), f_set1(1.0f)));
  F32 p = f_set1(1.061405429f);
  p = f_fma(p, t, f_set1(-1.453152027f));
  p = f_fma(p, t, f_set1(1.421413741f));
  p = f_fma(p, t, f_set1(-0.284496736f));
  p = f_fma(p, t, f_set1(0.254829592f));
  const F32 square = f_mul(f_mul(x, x), f_set1(-0.5f));
  const F32 tail = f_mul(f_mul(p, f_mul(t, f_set1(0.5f))), f_exp(square));
  return f_fma(f_sub(f_zero(), size), tail, f_max(x, f_zero()));
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
