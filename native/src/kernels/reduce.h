// Reductions over the vocabulary.
#pragma once

namespace emel {
namespace {

float largest(const float* values, size_t n) {
  F32 max = f_set1(values[0]);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) max = f_max(max, f_load(values + i));
  float result = tree_max(max);
  for (; i < n; ++i) result = result > values[i] ? result : values[i];
  return result;
}

int32_t argmax(const float* values, size_t n) {
  I32 magnitude = i_zero();
  const I32 sign_off = i_set1(0x7fffffff);
  size_t i = 0;
  for (; i < n; i += 16) magnitude = i_max(magnitude, i_and(i_bits(load_left(values + i, lanes_left(i, n))), sign_off));
  if (i_reduce_max(magnitude) >= 0x7f800000) return -1;
  const float max = largest(values, n);
  const F32 max_f32x16 = f_set1(max);
  for (i = 0; i + 16 <= n; i += 16) {
    const uint32_t mask = f_equal_mask(f_load(values + i), max_f32x16);
    if (mask != 0) return static_cast<int32_t>(i) + __builtin_ctz(mask);
  }
  while (values[i] != max) ++i;
  return static_cast<int32_t>(i);
}

}  // namespace
}  // namespace emel
