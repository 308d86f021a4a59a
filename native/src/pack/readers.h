// What a block of 32 elements says, read from GGUF's formats; inlined, for loops over whole rows (pack/types.h).
#pragma once

#include <string.h>

#include "core/bytes.h"
#include "kernels/formats.h"
#include "pack/grids.h"
#include "pack/source.h"

namespace emel {
namespace {

// Bytes of 16 nibble pairs: element i low, element i + 16 high.
inline void read_nibbles(const uint8_t* from, uint8_t* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = from[i] & 15;
    q[i + 16] = from[i] >> 4;
  }
}

// 32 bits, element 0 lowest: four of them at a time are spread over the lowest bits of four bytes.
inline void add_fifth_bit(const uint8_t* from, uint8_t* q) {
  uint32_t bits;
  memcpy(&bits, from, 4);
  for (int j = 0; j < 8; ++j) {
    uint32_t word;
    memcpy(&word, q + 4 * j, 4);
    word |= ((bits >> (4 * j) & 15) * 0x00204081u & 0x01010101u) << 4;
    memcpy(q + 4 * j, &word, 4);
  }
}

// K-quants lay 64 elements over 32 bytes: the block's nibble of each.
inline void read_wide_nibbles(const uint8_t* from, size_t block, uint8_t* q) {
  const uint8_t* bytes = from + block / 2 * 32;
  for (int i = 0; i < 32; ++i) q[i] = block % 2 == 0 ? bytes[i] & 15 : bytes[i] >> 4;
}

// And 128 elements over 32 bytes, two bits each.
inline void read_wide_pairs(const uint8_t* from, size_t block, uint8_t* q) {
  const uint8_t* bytes = from + block / 4 * 32;
  for (int i = 0; i < 32; ++i) q[i] = bytes[i] >> (2 * (block % 4)) & 3;
}

// Six-bit scale and offset of block j of Q4_K and Q5_K, from 12 bytes.
inline void read_six_bits(const uint8_t* s, size_t j, BlockValues* out) {
  if (j < 4) {
    out->sub_scale[0] = s[j] & 63;
    out->sub_offset[0] = s[j + 4] & 63;
  } else {
    out->sub_scale[0] = static_cast<uint8_t>((s[j + 4] & 15) | (s[j - 4] >> 6) << 4);
    out->sub_offset[0] = static_cast<uint8_t>((s[j + 4] >> 4) | (s[j] >> 6) << 4);
  }
}

// Six-bit scale k (of 16) of Q3_K, from 12 bytes, less 32.
inline uint8_t read_q3_scale(const uint8_t* s, size_t k) {
  const int low = k < 8 ? s[k] & 15 : s[k - 8] >> 4;
  const int high = s[8 + k % 4] >> (2 * (k / 4)) & 3;
  return static_cast<uint8_t>((low | high << 4) - 32);
}

inline void read_q2_k(const uint8_t* p, size_t j, BlockValues* out) {
  for (size_t half = 0; half < 2; ++half) {
    out->sub_scale[half] = p[2 * j + half] & 15;
    out->sub_offset[half] = p[2 * j + half] >> 4;
  }
  read_wide_pairs(p + 16, j, out->q);
  out->scale = read_u16(p + 80);
  out->offset = read_u16(p + 82);
}

inline void read_q3_k(const uint8_t* p, size_t j, BlockValues* out) {
  read_wide_pairs(p + 32, j, out->q);
  for (int i = 0; i < 32; ++i) out->q[i] |= static_cast<uint8_t>((p[i] >> j & 1) << 2);
  for (size_t half = 0; half < 2; ++half) out->sub_scale[half] = read_q3_scale(p + 96, 2 * j + half);
  out->scale = read_u16(p + 108);
}

inline void read_q4_k(const uint8_t* p, size_t j, BlockValues* out) {
  out->scale = read_u16(p);
  out->offset = read_u16(p + 2);
  read_six_bits(p + 4, j, out);
  read_wide_nibbles(p + 16, j, out->q);
}

inline void read_q5_k(const uint8_t* p, size_t j, BlockValues* out) {
  out->scale = read_u16(p);
  out->offset = read_u16(p + 2);
  read_six_bits(p + 4, j, out);
  read_wide_nibbles(p + 48, j, out->q);
  for (int i = 0; i < 32; ++i) out->q[i] |= static_cast<uint8_t>((p[16 + i] >> j & 1) << 4);
}

// 128 elements over 64 bytes of low nibbles and 32 of high pairs.
inline void read_q6_k(const uint8_t* p, size_t j, BlockValues* out) {
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

inline void read_iq4_xs(const uint8_t* p, size_t j, BlockValues* out) {
  out->scale = read_u16(p);
  const int high = read_u16(p + 2) >> (2 * j) & 3;
  const int low = p[4 + j / 2] >> (4 * (j % 2)) & 15;
  out->sub_scale[0] = static_cast<uint8_t>((low | high << 4) - 32);
  read_nibbles(p + 8 + j * 16, out->q);
}

// Half of 2^(e - 127) as the upper half of a float32.
inline uint16_t half_e8m0(uint8_t e) { return static_cast<uint16_t>(e < 2 ? 0x20u << e : (e - 1u) << 7); }

// Five ternary digits in a byte, most significant first: byte * 3^n mod 256, times 3, the carry.
inline uint8_t ternary_digit(uint8_t byte, int n) {
  constexpr uint8_t kPowers[5] = {1, 3, 9, 27, 81};
  return static_cast<uint8_t>(static_cast<uint8_t>(byte * kPowers[n]) * 3u >> 8);
}

inline void read_tq1_0(const uint8_t* p, size_t j, BlockValues* out) {
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

template <uint32_t kType>
void read_simple(const uint8_t* p, BlockValues* out) {
  out->scale = read_u16(p);
  if constexpr (kType == EMEL_TYPE_Q4_1) {
    out->offset = read_u16(p + 2);
    read_nibbles(p + 4, out->q);
  } else if constexpr (kType == EMEL_TYPE_Q5_0) {
    read_nibbles(p + 6, out->q);
    add_fifth_bit(p + 2, out->q);
  } else if constexpr (kType == EMEL_TYPE_Q5_1) {
    out->offset = read_u16(p + 2);
    read_nibbles(p + 8, out->q);
    add_fifth_bit(p + 4, out->q);
  } else if constexpr (kType == EMEL_TYPE_Q8_0) {
    for (int i = 0; i < 32; ++i) out->q[i] = p[2 + i] ^ 0x80;
  } else if constexpr (kType == EMEL_TYPE_MXFP4) {
    out->scale = half_e8m0(p[0]);
    read_nibbles(p + 1, out->q);
  } else {
    static_assert(kType == EMEL_TYPE_Q4_0 || kType == EMEL_TYPE_IQ4_NL);
    read_nibbles(p + 2, out->q);
  }
}

// Block index (of 32 elements) of a row.
template <uint32_t kType>
void read_block_of(const uint8_t* row, size_t index, BlockValues* out) {
  constexpr SourceBlock kSource = source_block(kType);
  constexpr size_t kPerBlock = kSource.elements / kBlock;
  const uint8_t* p = row + index / kPerBlock * kSource.bytes;
  const size_t j = index % kPerBlock;
  if constexpr (kType == EMEL_TYPE_Q2_K) {
    read_q2_k(p, j, out);
  } else if constexpr (kType == EMEL_TYPE_Q3_K) {
    read_q3_k(p, j, out);
  } else if constexpr (kType == EMEL_TYPE_Q4_K) {
    read_q4_k(p, j, out);
  } else if constexpr (kType == EMEL_TYPE_Q5_K) {
    read_q5_k(p, j, out);
  } else if constexpr (kType == EMEL_TYPE_Q6_K) {
    read_q6_k(p, j, out);
  } else if constexpr (kType == EMEL_TYPE_IQ4_XS) {
    read_iq4_xs(p, j, out);
  } else if constexpr (kType == EMEL_TYPE_IQ1_S) {
    read_iq1_s(p, j, out);
  } else if constexpr (kType == EMEL_TYPE_IQ1_M) {
    read_iq1_m(p, j, out);
  } else if constexpr (kType == EMEL_TYPE_IQ2_XXS) {
    read_iq2_xxs(p, j, out);
  } else if constexpr (kType == EMEL_TYPE_IQ2_XS) {
    read_iq2_xs(p, j, out);
  } else if constexpr (kType == EMEL_TYPE_IQ2_S) {
    read_iq2_s(p, j, out);
  } else if constexpr (kType == EMEL_TYPE_IQ3_XXS) {
    read_iq3_xxs(p, j, out);
  } else if constexpr (kType == EMEL_TYPE_IQ3_S) {
    read_iq3_s(p, j, out);
  } else if constexpr (kType == EMEL_TYPE_TQ1_0) {
    read_tq1_0(p, j, out);
  } else if constexpr (kType == EMEL_TYPE_TQ2_0) {
    out->scale = read_u16(p + 64);
    read_wide_pairs(p, j, out->q);
  } else {
    read_simple<kType>(p, out);
  }
}

}  // namespace
}  // namespace emel
