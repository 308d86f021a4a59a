// The blocks of the KV cache in each format: how a number becomes a float32, and how keys and values get there.
//
// A Q8_0 number is q * d, exact in float32: d is float16, |q| <= 127. d = amax / 127 of up to 32 numbers of one head of
// one token, rounded to float16; q = x / d, rounded half to even.
#pragma once

namespace emel {
namespace {

EMEL_INLINE F32 load_numbers(const uint16_t* at) { return f_load_f16(at); }
EMEL_INLINE F32 load_numbers(const float* at) { return f_load(at); }
EMEL_INLINE void store_numbers(uint16_t* at, F32 x) { f_store_f16(at, x); }
EMEL_INLINE void store_numbers(float* at, F32 x) { f_store(at, x); }

// Numbers without scales: float16 as uint16_t, or float.
template <class Number>
struct FloatBlock {
  static constexpr size_t kBytes = sizeof(Number);  // of a number
  const Number* keys;  // (head_dim, 16)
  const Number* values;  // (16, padded)
  size_t padded;
  EMEL_INLINE_MEMBER FloatBlock(const KvLayout& kv, const uint8_t* head)
      : keys(reinterpret_cast<const Number*>(head)),
        values(reinterpret_cast<const Number*>(head + kv.values_at)),
        padded(kv.padded_head_dim) {}
  EMEL_INLINE_MEMBER F32 key(size_t d) const { return load_numbers(keys + d * EMEL_KV_BLOCK); }
  // Scales of values [d, d + n) of each token, for value().
  EMEL_INLINE_MEMBER void open_values(size_t, size_t, float*) const {}
  EMEL_INLINE_MEMBER F32 value(size_t token, size_t d, const float*) const {
    return load_numbers(values + token * padded + d);
  }
};

struct Q8Block {
  static constexpr size_t kBytes = 1;  // of a number
  const uint8_t* keys;  // a packed row group
  const uint16_t* value_scales;  // (parts, 16)
  const uint8_t* values;
  size_t padded;
  EMEL_INLINE_MEMBER Q8Block(const KvLayout& kv, const uint8_t* head)
      : keys(head),
        value_scales(reinterpret_cast<const uint16_t*>(head + kv.values_at)),
        values(head + kv.values_at + kv.scale_bytes),
        padded(kv.padded_head_dim) {}
  EMEL_INLINE_MEMBER void open_values(size_t d, size_t n, float* scales) const {
    for (size_t part = d / kKvPart; part * kKvPart < d + n; ++part) {
      f_store(scales + (part - d / kKvPart) * EMEL_KV_BLOCK, f_load_f16(value_scales + part * EMEL_KV_BLOCK));
    }
  }
  EMEL_INLINE_MEMBER F32 value(size_t token, size_t d, const float* scales) const {
    return f_mul(f_load_i8(values + token * padded + d), f_set1(scales[token]));
  }
};

// To the second-level cache: by the time it is read, the first would have lost it.
EMEL_INLINE void fetch_ahead(const void* from) { __builtin_prefetch(from, 0, 2); }

// Keys of a block widened to float32.
struct WideBlock {
  const float* keys;  // (head_dim, 16)
  EMEL_INLINE_MEMBER F32 key(size_t d) const { return f_load(keys + d * EMEL_KV_BLOCK); }
};

EMEL_INLINE WideBlock widen_keys(const FloatBlock<uint16_t>& block, size_t head_dim, float* to) {
  for (size_t d = 0; d < head_dim; ++d) f_store(to + d * EMEL_KV_BLOCK, block.key(d));
  return {to};
}

EMEL_INLINE WideBlock widen_keys(const FloatBlock<float>& block, size_t, float*) { return {block.keys}; }

// To (16, padded).
template <class Block>
EMEL_INLINE void widen_values(const Block& block, float* to) {
  for (size_t d = 0; d < block.padded; d += 16) {
    float scales[EMEL_KV_BLOCK];
    block.open_values(d, 16, scales);
    for (size_t token = 0; token < EMEL_KV_BLOCK; ++token) {
      f_store(to + token * block.padded + d, block.value(token, d, scales));
    }
  }
}

// One head of one token into slot `slot` of a block without scales.
template <class Number>
EMEL_INLINE void store_floats(const KvLayout& kv, uint8_t* head, size_t slot, const float* k, const float* v,
                              size_t n) {
  Number* keys = reinterpret_cast<Number*>(head);
  Number* values = reinterpret_cast<Number*>(head + kv.values_at) + slot * kv.padded_head_dim;
  for (size_t d = 0; d < n; d += 16) {
    const int left = lanes_left(d, n);
    Number key[16];
    store_numbers(key, load_left(k + d, left));
    for (int i = 0; i < left; ++i) keys[(d + static_cast<size_t>(i)) * EMEL_KV_BLOCK + slot] = key[i];
    store_numbers(values + d, load_left(v + d, left));
  }
}

// Up to 32 numbers as int8; returns their scale. A number that is not finite makes the scale NaN.
EMEL_INLINE uint16_t quantize_part(const float* x, size_t n, int8_t* q) {
  F32 half[2];
  I32 size = i_zero();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const size_t at = 16 * static_cast<size_t>(h);
    half[h] = at < n ? load_left(x + at, lanes_left(at, n)) : f_zero();
    size = i_max(size, i_and(i_bits(half[h]), i_set1(0x7fffffff)));
  }
  const int32_t largest = i_reduce_max(size);
  float amax;
  memcpy(&amax, &largest, sizeof amax);
  uint16_t scales[EMEL_KV_BLOCK];
  f_store_f16(scales, f_set1(amax / 127.0f));
  const bool is_finite = largest < 0x7f800000 && scales[0] < 0x7c00u;
  const F32 d = f_load_f16(scales);
  const bool is_zero = scales[0] == 0;
  for (int h = 0; h < 2; ++h) {
    F32 scaled = f_zero();
    if (is_finite && !is_zero) {
      scaled = f_min(f_max(f_div(half[h], d), f_set1(-127.0f)), f_set1(127.0f));  // a subnormal d may be too small
    }
    i_store_i8(q + 16 * h, i_round(scaled));
  }
  constexpr uint16_t kNan = 0x7e00;
  return is_finite ? scales[0] : kNan;
}

EMEL_INLINE void store_q8(const KvLayout& kv, uint8_t* head, size_t slot, const float* k, const float* v, size_t n) {
  constexpr BlockLayout kGroup(EMEL_TYPE_Q8_0);
  uint16_t* value_scales = reinterpret_cast<uint16_t*>(head + kv.values_at);
  uint8_t* values = head + kv.values_at + kv.scale_bytes + slot * kv.padded_head_dim;
  for (size_t part = 0; part * kKvPart < n; ++part) {
    const size_t at = part * kKvPart;
    const size_t left = n - at < kKvPart ? n - at : kKvPart;
    int8_t q[kKvPart];
    reinterpret_cast<uint16_t*>(head + kGroup.scale_at(part))[slot] = quantize_part(k + at, left, q);
    uint8_t* quants = head + kGroup.quants_at(part) + 4 * slot;
    for (size_t i = 0; i < kKvPart; ++i) quants[i / 4 * 64 + i % 4] = static_cast<uint8_t>(q[i] + 128);
    value_scales[part * EMEL_KV_BLOCK + slot] = quantize_part(v + at, left, q);
    memcpy(values + at, q, round_up(left, 16));
  }
}

}  // namespace
}  // namespace emel
