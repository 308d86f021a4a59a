#include "core/math.h"

#include <stdint.h>
#include <string.h>

namespace emel {
namespace {

constexpr double kLn2High = 6.93147180369123816490e-01;  // low 32 bits zero
constexpr double kLn2Low = 1.90821492927058770002e-10;
constexpr double kInverseLn2 = 1.44269504088896338700e+00;
constexpr double kTwoOverPi = 6.36619772367581382433e-01;
// pi/2 in three parts of at most 33 bits, so that a multiple up to 2^20 of each is exact.
constexpr double kHalfPi1 = 1.57079632673412561417e+00;
constexpr double kHalfPi2 = 6.07710050630396597660e-11;
constexpr double kHalfPi3 = 2.02226624879595063154e-21;

double round_to_even(double x) { return (x + 6755399441055744.0) - 6755399441055744.0; }

// Taylor to x^17 and x^18 on |x| <= pi/4 (plus rounding).
double sine_near_zero(double x) {
  const double z = x * x;
  double p = 1.0 / 355687428096000.0;
  p = __builtin_fma(p, z, -1.0 / 1307674368000.0);
  p = __builtin_fma(p, z, 1.0 / 6227020800.0);
  p = __builtin_fma(p, z, -1.0 / 39916800.0);
  p = __builtin_fma(p, z, 1.0 / 362880.0);
  p = __builtin_fma(p, z, -1.0 / 5040.0);
  p = __builtin_fma(p, z, 1.0 / 120.0);
  p = __builtin_fma(p, z, -1.0 / 6.0);
  return __builtin_fma(p * z, x, x);
}
double cosine_near_zero(double x) {
  const double z = x * x;
  double p = -1.0 / 6402373705728000.0;
  p = __builtin_fma(p, z, 1.0 / 20922789888000.0);
  p = __builtin_fma(p, z, -1.0 / 87178291200.0);
  p = __builtin_fma(p, z, 1.0 / 479001600.0);
  p = __builtin_fma(p, z, -1.0 / 3628800.0);
  p = __builtin_fma(p, z, 1.0 / 40320.0);
  p = __builtin_fma(p, z, -1.0 / 720.0);
  p = __builtin_fma(p, z, 1.0 / 24.0);
  p = __builtin_fma(p, z, -0.5);
  return __builtin_fma(p, z, 1.0);
}

}  // namespace

SineCosine sine_cosine(double x) {
  const double n = round_to_even(x * kTwoOverPi);
  double r = __builtin_fma(-n, kHalfPi1, x);
  r = __builtin_fma(-n, kHalfPi2, r);
  r = __builtin_fma(-n, kHalfPi3, r);
  const double s = sine_near_zero(r);
  const double c = cosine_near_zero(r);
  switch (static_cast<int64_t>(n) & 3) {
    case 0:
      return {s, c};
    case 1:
      return {c, -s};
    case 2:
      return {-s, -c};
    default:
      return {-c, s};
  }
}

double exponential(double x) {
  if (!(x > -700.0)) return 0.0;
  const double n = round_to_even(x * kInverseLn2);
  double r = __builtin_fma(-n, kLn2High, x);
  r = __builtin_fma(-n, kLn2Low, r);
  double p = 1.0 / 6227020800.0;  // 1/13!
  constexpr double kTaylor[] = {1.0 / 479001600.0,
                                1.0 / 39916800.0,
                                1.0 / 3628800.0,
                                1.0 / 362880.0,
                                1.0 / 40320.0,
                                1.0 / 5040.0,
                                1.0 / 720.0,
                                1.0 / 120.0,
                                1.0 / 24.0,
                                1.0 / 6.0,
                                0.5,
                                1.0,
                                1.0};
  for (const double term : kTaylor) p = __builtin_fma(p, r, term);
  const uint64_t bits = static_cast<uint64_t>(static_cast<int64_t>(n) + 1023) << 52;
  double power;
  memcpy(&power, &bits, sizeof power);
  return p * power;
}

double logarithm(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  bits = (bits & 0xfffffffffffffu) | 0x3ff0000000000000u;
  double m;
  memcpy(&m, &bits, sizeof m);
  if (m > 1.41421356237309504880) {  // keep m in [sqrt(1/2), sqrt(2)]
    m *= 0.5;
    ++exponent;
  }
  // log m = 2 atanh((m - 1) / (m + 1)), |z| <= 0.172
  const double z = (m - 1.0) / (m + 1.0);
  const double z2 = z * z;
  double p = 1.0 / 23.0;
  for (int k = 21; k >= 1; k -= 2) p = __builtin_fma(p, z2, 1.0 / static_cast<double>(k));
  const double e = static_cast<double>(exponent);
  return __builtin_fma(e, kLn2High, __builtin_fma(e, kLn2Low, 2.0 * z * p));
}

}  // namespace emel
