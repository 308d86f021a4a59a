// What happens to values on their way: results of a matrix scaled and capped, sums into the residual stream.
#pragma once

namespace emel {
namespace {

// x * scale, then cap * tanh(x / cap) unless cap is 0, in place.
void adjust(float* x, size_t n, float scale, float cap) {
  const F32 inverse = f_set1(1.0f / cap);
  for (size_t i = 0; i < n; i += 16) {
    const int left = lanes_left(i, n);
    F32 v = f_mul(load_left(x + i, left), f_set1(scale));
    // v * 0 is nothing for a finite value and NaN for any other.
    if (cap != 0.0f) v = f_fma(v, f_zero(), f_mul(f_tanh(f_mul(v, inverse)), f_set1(cap)));
    store_left(x + i, v, left);
  }
}

void add(const AddArgs& a) {
  for (size_t row = a.row_begin; row < a.row_end; ++row) {
    float scale = a.scale;
    if (a.gate != nullptr) {
      const float gate = a.gate[row];
      scale = scale * (0.0f * gate + 1.0f / (1.0f + exp_one(-gate)));
    }
    const float* x = a.x + row * a.n;
    const float* delta = a.delta + row * a.n;
    for (size_t i = 0; i < a.n; i += 16) {
      const int left = lanes_left(i, a.n);
      store_left(a.out + row * a.n + i, f_fma(load_left(delta + i, left), f_set1(scale), load_left(x + i, left)), left);
    }
  }
}

}  // namespace
}  // namespace emel
