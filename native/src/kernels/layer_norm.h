// Layer norm, and the mean of a sequence's rows: what encoders need beyond decoders.
#pragma once

namespace emel {
namespace {

// x plus the scaled delta, written back where there is one; the sixteen partial sums of all of it.
EMEL_INLINE F32 summed_stream(const NormArgs& a, float* x, const float* delta) {
  const F32 delta_scale = f_set1(a.delta_scale == 0.0f ? 1.0f : a.delta_scale);
  F32 sum = f_zero();
  for (size_t i = 0; i < a.n; i += 16) {
    const int left = lanes_left(i, a.n);
    F32 v = load_left(x + i, left);
    if (delta != nullptr) {
      v = f_fma(load_left(delta + i, left), delta_scale, v);
      store_left(x + i, v, left);
    }
    sum = f_add(sum, v);
  }
  return sum;
}

// (x - mean) / sqrt(mean((x - mean)^2) + epsilon) * weight + bias (Ba et al. 2016, arXiv:1607.06450).
void layer_norm(const NormArgs& a) {
  const QuantizedLayout layout(a.n, a.n_planes);
  for (size_t row = a.row_begin; row < a.row_end; ++row) {
    float* x = a.x + row * a.n;
    const F32 sum = summed_stream(a, x, a.delta == nullptr ? nullptr : a.delta + row * a.n);
    float means[16];
    f_store(means, f_set1(tree_sum(sum) / static_cast<float>(a.n)));
    F32 squares = f_zero();
    for (size_t i = 0; i < a.n; i += 16) {
      const int left = lanes_left(i, a.n);
      const F32 v = f_sub(load_left(x + i, left), load_left(means, left));  // lanes past the end stay zero
      squares = f_fma(v, v, squares);
    }
    const float square_sum = tree_sum(squares);
    int32_t* bad = a.bad_layer + (a.token_rows == nullptr ? row : static_cast<size_t>(a.token_rows[row]));
    if (!is_finite(square_sum) && *bad < 0) *bad = a.layer;
    const F32 scale = f_set1(1.0f / __builtin_sqrtf(square_sum / static_cast<float>(a.n) + a.epsilon));
    const F32 mean = f_load(means);
    for (size_t i = 0; i < a.n; i += kBlock) {
      F32 half[2];
      for (int h = 0; h < 2; ++h) {
        const size_t at = i + 16 * static_cast<size_t>(h);
        const int left = lanes_left(at, a.n);
        half[h] = f_zero();
        if (left == 0) continue;
        const F32 bias = a.bias == nullptr ? f_zero() : load_left(a.bias + at, left);
        const F32 v = f_mul(f_sub(load_left(x + at, left), mean), scale);
        half[h] = f_fma(v, load_left(a.weight + at, left), bias);
        if (a.out != nullptr) store_left(a.out + row * a.n + at, half[h], left);
      }
      if (a.quantized != nullptr) {
        quantize_block(half[0], half[1], a.quantized + row * layout.bytes(), layout, i / kBlock);
      }
    }
  }
}

void mean(const MeanArgs& a) {
  const F32 count = f_set1(static_cast<float>(a.row_end - a.row_begin));
  for (size_t i = 0; i < a.n; i += 16) {
    const int left = lanes_left(i, a.n);
    F32 sum = f_zero();
    for (size_t row = a.row_begin; row < a.row_end; ++row) sum = f_add(sum, load_left(a.in + row * a.n + i, left));
    store_left(a.out + i, f_div(sum, count), left);
  }
}

}  // namespace
}  // namespace emel
