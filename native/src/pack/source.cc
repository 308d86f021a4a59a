#include "pack/source.h"

#include <string.h>

#include "core/bytes.h"
#include "core/half.h"
#include "kernels/formats.h"
#include "pack/grids.h"

namespace emel {
namespace {

// Bytes of 16 nibble pairs: element i low, element i + 16 high.
void read_nibbles(const uint8_t* from, uint8_t* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = from[i] & 15;
    q[i + 16] = from[i] >> 4;
  }
}

void add_fifth_bit(const uint8_t* from, uint8_t* q) {
  uint32_t bits;
  memcpy(&bits, from, 4);
  for (int i = 0; i < 32; ++i) q[i] |= static_cast<uint8_t>((bits >> i & 1u) << 4);
}

// K-quants lay 64 elements over 32 bytes: the block's nibble of each.
void read_wide_nibbles(const uint8_t* from, size_t block, uint8_t* q) {
  const uint8_t* bytes = from + block / 2 * 32;
  for (int i = 0; i < 32; ++i) q[i] = block % 2 == 0 ? bytes[i] & 15 : bytes[i] >> 4;
}

// And 128 elements over 32 bytes, two bits each.
void read_wide_pairs(const uint8_t* from, size_t block, uint8_t* q) {
  const uint8_t* bytes = from + block / 4 * 32;
  for (int i = 0; i < 32; ++i) q[i] = bytes[i] >> (2 * (block % 4)) & 3;
}

// Six-bit scale and offset of block j of Q4_K and Q5_K, from 12 bytes.
void read_six_bits(const uint8_t* s, size_t j, BlockValues* out) {
  if (j < 4) {
    out->sub_scale[0] = s[j] & 63;
    out->sub_offset[0] = s[j + 4] & 63;
  } else {
    out->sub_scale[0] = static_cast<uint8_t>((s[j + 4] & 15) | (s[j - 4] >> 6) << 4);
    out->sub_offset[0] = static_cast<uint8_t>((s[j + 4] >> 4) | (s[j] >> 6) << 4);
  }
}

// Six-bit scale k (of 16) of Q3_K, from 12 bytes, less 32.
uint8_t read_q3_scale(const uint8_t* s, size_t k) {
  const int low = k < 8 ? s[k] & 15 : s[k - 8] >> 4;
  const int high = s[8 + k % 4] >> (2 * (k / 4)) & 3;
  return static_cast<uint8_t>((low | high << 4) - 32);
}

void read_q2_k(const uint8_t* p, size_t j, BlockValues* out) {
  for (size_t half = 0; half < 2; ++half) {
    out->sub_scale[half] = p[2 * j + half] & 15;
    out->sub_offset[half] = p[2 * j + half] >> 4;
  }
  read_wide_pairs(p + 16, j, out->q);
  out->scale = read_u16(p + 80);
  out->offset = read_u16(p + 82);
}

void read_q3_k(const uint8_t* p, size_t j, BlockValues* out) {
  read_wide_pairs(p + 32, j, out->q);
  for (int i = 0; i < 32; ++i) out->q[i] |= static_cast<uint8_t>((p[i] >> j & 1) << 2);
  for (size_t half = 0; half < 2; ++half) out->sub_scale[half] = read_q3_scale(p + 96, 2 * j + half);
  out->scale = read_u16(p + 108);
}

void read_q4_k(const uint8_t* p, size_t j, BlockValues* out) {
  out->scale = read_u16(p);
  out->offset = read_u16(p + 2);
  read_six_bits(p + 4, j, out);
  read_wide_nibbles(p + 16, j, out->q);
}

void read_q5_k(const uint8_t* p, size_t j, BlockValues* out) {
  out->scale = read_u16(p);
  out->offset = read_u16(p + 2);
  read_six_bits(p + 4, j, out);
  read_wide_nibbles(p + 48, j, out->q);
  for (int i = 0; i < 32; ++i) out->q[i] |= static_cast<uint8_t>((p[16 + i] >> j & 1) << 4);
}

// 128 elements over 64 bytes of low nibbles and 32 of high pairs.
void read_q6_k(const uint8_t* p, size_t j, BlockValues* out) {
  const size_t part = j % 4;
  const uint8_t* low = p + j / 4 * 64 + part % 2 * 32;
  const uint8_t* high = p + 128 + j / 4 * 32;
  for (int i = 0; i < 32; ++i) {
    const int nibble = part < 2 ? low[i] & 15 : low[i] >> 4;
    out->q[i] = static_cast<uint8_t>(nibble | (high[i] >> (2 * part) & 3) << 4);
  }
  for (size_t half = 0; half < 2; ++half) out->sub_scale[half] = p[192 + 2 * j + half];
  out->scale = read_u16(p + 208);
}

void read_iq4_xs(const uint8_t* p, size_t j, BlockValues* out) {
  out->scale = read_u16(p);
  const int high = read_u16(p + 2) >> (2 * j) & 3;
  const int low = p[4 + j / 2] >> (4 * (j % 2)) & 15;
  out->sub_scale[0] = static_cast<uint8_t>((low | high << 4) - 32);
  read_nibbles(p + 8 + j * 16, out->q);
}

// Half of 2^(e - 127) as the upper half of a float32.
uint16_t half_e8m0(uint8_t e) { return static_cast<uint16_t>(e < 2 ? 0x20u << e : (e - 1u) << 7); }

// Five ternary digits in a byte, most significant first: byte * 3^n mod 256, times 3, the carry.
uint8_t ternary_digit(uint8_t byte, int n) {
  constexpr uint8_t kPowers[5] = {1, 3, 9, 27, 81};
  return static_cast<uint8_t>(static_cast<uint8_t>(byte * kPowers[n]) * 3u >> 8);
}

void read_tq1_0(const uint8_t* p, size_t j, BlockValues* out) {
  for (size_t i = 0; i < 32; ++i) {
    const size_t element = 32 * j + i;
    if (element < 160) {
      out->q[i] = ternary_digit(p[element % 32], static_cast<int>(element / 32));
    } else if (element < 240) {
      out->q[i] = ternary_digit(p[32 + (element - 160) % 16], static_cast<int>((element - 160) / 16));
    } else {
      out->q[i] = ternary_digit(p[48 + (element - 240) % 4], static_cast<int>((element - 240) / 4));
    }
  }
  out->scale = read_u16(p + 52);
}

void read_simple(uint32_t type, const uint8_t* p, BlockValues* out) {
  out->scale = read_u16(p);
  switch (type) {
    case EMEL_TYPE_Q4_1:
      out->offset = read_u16(p + 2);
      return read_nibbles(p + 4, out->q);
    case EMEL_TYPE_Q5_0:
      read_nibbles(p + 6, out->q);
      return add_fifth_bit(p + 2, out->q);
    case EMEL_TYPE_Q5_1:
      out->offset = read_u16(p + 2);
      read_nibbles(p + 8, out->q);
      return add_fifth_bit(p + 4, out->q);
    case EMEL_TYPE_Q8_0:
      for (int i = 0; i < 32; ++i) out->q[i] = p[2 + i] ^ 0x80;
      return;
    case EMEL_TYPE_MXFP4:
      out->scale = half_e8m0(p[0]);
      return read_nibbles(p + 1, out->q);
    default:  // Q4_0, IQ4_NL
      return read_nibbles(p + 2, out->q);
  }
}

float bfloat(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  memcpy(&value, &wide, 4);
  return value;
}

float scale_value(const Format& format, const BlockValues& v, size_t half) {
  if (format.scales == Scales::kBfloat) return bfloat(v.scale);
  const float d = half_to_float(v.scale);
  if (format.scales == Scales::kSuper) {
    return d * static_cast<float>(static_cast<int8_t>(v.sub_scale[half])) * format.fraction;
  }
  if (format.scales == Scales::kSuperOffset || format.scales == Scales::kSuperNibbles) {
    return d * static_cast<float>(v.sub_scale[half]);
  }
  return d;
}

float offset_value(const Format& format, const BlockValues& v, size_t half) {
  const float m = half_to_float(v.offset);
  return format.scales == Scales::kHalfOffset ? m : -m * static_cast<float>(v.sub_offset[half]);
}

}  // namespace

SourceBlock source_block(uint32_t type) {
  switch (type) {
    case EMEL_TYPE_F32:
      return {4, 1};
    case EMEL_TYPE_F16:
    case EMEL_TYPE_BF16:
      return {2, 1};
    case EMEL_TYPE_Q4_0:
    case EMEL_TYPE_IQ4_NL:
      return {18, 32};
    case EMEL_TYPE_Q4_1:
      return {20, 32};
    case EMEL_TYPE_Q5_0:
      return {22, 32};
    case EMEL_TYPE_Q5_1:
      return {24, 32};
    case EMEL_TYPE_Q8_0:
      return {34, 32};
    case EMEL_TYPE_MXFP4:
      return {17, 32};
    case EMEL_TYPE_Q2_K:
      return {84, 256};
    case EMEL_TYPE_Q3_K:
      return {110, 256};
    case EMEL_TYPE_Q4_K:
      return {144, 256};
    case EMEL_TYPE_Q5_K:
      return {176, 256};
    case EMEL_TYPE_Q6_K:
      return {210, 256};
    case EMEL_TYPE_IQ4_XS:
      return {136, 256};
    case EMEL_TYPE_IQ1_S:
      return {50, 256};
    case EMEL_TYPE_IQ1_M:
      return {56, 256};
    case EMEL_TYPE_IQ2_XXS:
      return {66, 256};
    case EMEL_TYPE_IQ2_XS:
      return {74, 256};
    case EMEL_TYPE_IQ2_S:
      return {82, 256};
    case EMEL_TYPE_IQ3_XXS:
      return {98, 256};
    case EMEL_TYPE_IQ3_S:
      return {110, 256};
    case EMEL_TYPE_TQ1_0:
      return {54, 256};
    case EMEL_TYPE_TQ2_0:
      return {66, 256};
    default:
      return {0, 0};
  }
}

void read_block(uint32_t type, const uint8_t* row, size_t index, BlockValues* out) {
  const SourceBlock source = source_block(type);
  const size_t per_block = source.elements / kBlock;
  const uint8_t* p = row + index / per_block * source.bytes;
  const size_t j = index % per_block;
  switch (type) {
    case EMEL_TYPE_Q2_K:
      return read_q2_k(p, j, out);
    case EMEL_TYPE_Q3_K:
      return read_q3_k(p, j, out);
    case EMEL_TYPE_Q4_K:
      return read_q4_k(p, j, out);
    case EMEL_TYPE_Q5_K:
      return read_q5_k(p, j, out);
    case EMEL_TYPE_Q6_K:
      return read_q6_k(p, j, out);
    case EMEL_TYPE_IQ4_XS:
      return read_iq4_xs(p, j, out);
    case EMEL_TYPE_IQ1_S:
      return read_iq1_s(p, j, out);
    case EMEL_TYPE_IQ1_M:
      return read_iq1_m(p, j, out);
    case EMEL_TYPE_IQ2_XXS:
      return read_iq2_xxs(p, j, out);
    case EMEL_TYPE_IQ2_XS:
      return read_iq2_xs(p, j, out);
    case EMEL_TYPE_IQ2_S:
      return read_iq2_s(p, j, out);
    case EMEL_TYPE_IQ3_XXS:
      return read_iq3_xxs(p, j, out);
    case EMEL_TYPE_IQ3_S:
      return read_iq3_s(p, j, out);
    case EMEL_TYPE_TQ1_0:
      return read_tq1_0(p, j, out);
    case EMEL_TYPE_TQ2_0:
      out->scale = read_u16(p + 64);
      return read_wide_pairs(p, j, out->q);
    default:
      return read_simple(type, p, out);
  }
}

void block_floats(uint32_t type, const BlockValues& v, float* out) {
  const Format format = format_of(type);
  const int zero = format.zero_bits < 0 ? 0 : 1 << format.zero_bits;
  for (size_t i = 0; i < kBlock; ++i) {
    const size_t half = format.halves == 2 ? i / 16 : 0;
    const int q = format.quants == Quants::kTable ? table_of(type).values[v.q[i]] : v.q[i];
    const float value = scale_value(format, v, half) * static_cast<float>(q - zero);
    out[i] = has_offset(format.scales) ? value + offset_value(format, v, half) : value;
  }
}

}  // namespace emel
