// Double-precision functions of our own, so that no library's rounding reaches a result.
#pragma once

namespace emel {

struct SineCosine {
  double sine;
  double cosine;
};

// |x| up to 2^30; error below 1e-14.
SineCosine sine_cosine(double x);
// x up to 700; relative error below 1e-14; 0 for x <= -700 and for a NaN.
double exponential(double x);
// x > 0, normal; error below 1e-14.
double logarithm(double x);

}  // namespace emel
