#include "pack/grids.h"

#include "core/bytes.h"

namespace emel {
namespace {

constexpr uint8_t kNegative = 8;  // added to a table index: the same magnitude below zero (kernels/formats.h)

// 8 signs that a file writes as 7: an even number of them is negative.
uint8_t even_signs(uint32_t seven) {
  uint32_t parity = seven & 127u;
  parity ^= parity >> 4;
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return static_cast<uint8_t>((seven & 127u) | (parity & 1u) << 7);
}

// n values of `bits` bits each, with a sign bit for each.
void put_point(uint32_t point, int bits, int n, uint32_t signs, uint8_t* q) {
  const uint32_t mask = (1u << bits) - 1;
  for (int i = 0; i < n; ++i) {
    q[i] = static_cast<uint8_t>((point >> (bits * i) & mask) | (signs >> i & 1u) * kNegative);
  }
}

// 8 values -1, 0, 1 with an eighth added or taken off, in eighths: 1, 7 and 9 are entries 3 to 5 of the table.
void put_ternary(uint32_t point, bool is_lowered, uint8_t* q) {
  constexpr uint8_t kRaised[3] = {4 | kNegative, 3, 5};  // -7, 1, 9
  constexpr uint8_t kLowered[3] = {5 | kNegative, 3 | kNegative, 4};  // -9, -1, 7
  for (int i = 0; i < 8; ++i) q[i] = (is_lowered ? kLowered : kRaised)[point >> (2 * i) & 3];
}

uint8_t odd(int half_scale) { return static_cast<uint8_t>(2 * half_scale + 1); }

void put_odd_nibbles(uint8_t nibbles, BlockValues* out) {
  out->sub_scale[0] = odd(nibbles & 15);
  out->sub_scale[1] = odd(nibbles >> 4);
}

}  // namespace

void read_iq2_xxs(const uint8_t* p, size_t j, BlockValues* out) {
  const uint8_t* points = p + 2 + 8 * j;
  const uint32_t rest = read_u32(points + 4);
  out->scale = read_u16(p);
  out->sub_scale[0] = odd(static_cast<int>(rest >> 28));
  for (size_t k = 0; k < 4; ++k) put_point(kGrid2Xxs[points[k]], 2, 8, even_signs(rest >> (7 * k)), out->q + 8 * k);
}

void read_iq2_xs(const uint8_t* p, size_t j, BlockValues* out) {
  out->scale = read_u16(p);
  put_odd_nibbles(p[66 + j], out);
  for (size_t k = 0; k < 4; ++k) {
    const uint32_t word = read_u16(p + 2 + 8 * j + 2 * k);
    put_point(kGrid2Xs[word & 511u], 2, 8, even_signs(word >> 9), out->q + 8 * k);
  }
}

void read_iq2_s(const uint8_t* p, size_t j, BlockValues* out) {
  out->scale = read_u16(p);
  put_odd_nibbles(p[74 + j], out);
  for (size_t k = 0; k < 4; ++k) {
    const uint32_t high = p[66 + j] >> (2 * k) & 3u;
    put_point(kGrid2S[p[2 + 4 * j + k] | high << 8], 2, 8, p[34 + 4 * j + k], out->q + 8 * k);
  }
}

void read_iq3_xxs(const uint8_t* p, size_t j, BlockValues* out) {
  const uint8_t* points = p + 2 + 8 * j;
  const uint32_t rest = read_u32(p + 66 + 4 * j);
  out->scale = read_u16(p);
  out->sub_scale[0] = odd(static_cast<int>(rest >> 28));
  for (size_t k = 0; k < 8; ++k) {
    const uint32_t signs = even_signs(rest >> (7 * (k / 2)));
    put_point(kGrid3Xxs[points[k]], 3, 4, signs >> (4 * (k % 2)), out->q + 4 * k);
  }
}

void read_iq3_s(const uint8_t* p, size_t j, BlockValues* out) {
  out->scale = read_u16(p);
  out->sub_scale[0] = odd(p[106 + j / 2] >> (4 * (j % 2)) & 15);
  for (size_t k = 0; k < 8; ++k) {
    const uint32_t high = p[66 + j] >> k & 1u;
    const uint32_t signs = p[74 + 4 * j + k / 2];
    put_point(kGrid3S[p[2 + 8 * j + k] | high << 8], 3, 4, signs >> (4 * (k % 2)), out->q + 4 * k);
  }
}

void read_iq1_s(const uint8_t* p, size_t j, BlockValues* out) {
  const uint32_t high = read_u16(p + 34 + 2 * j);
  out->scale = read_u16(p);
  out->sub_scale[0] = odd(static_cast<int>(high >> 12 & 7u));
  for (size_t k = 0; k < 4; ++k) {
    const uint32_t point = p[2 + 4 * j + k] | (high >> (3 * k) & 7u) << 8;
    put_ternary(kGrid1[point], (high & 0x8000u) != 0, out->q + 8 * k);
  }
}

// The float16 scale lies in the upper nibbles of the four words of sub-scales.
void read_iq1_m(const uint8_t* p, size_t j, BlockValues* out) {
  const uint8_t* scales = p + 48;
  uint32_t scale = 0;
  for (size_t k = 0; k < 4; ++k) scale |= static_cast<uint32_t>(read_u16(scales + 2 * k) >> 12) << (4 * k);
  out->scale = static_cast<uint16_t>(scale);
  const uint32_t both = read_u16(scales + j / 2 * 2) >> (6 * (j % 2));
  out->sub_scale[0] = odd(static_cast<int>(both & 7u));
  out->sub_scale[1] = odd(static_cast<int>(both >> 3 & 7u));
  for (size_t k = 0; k < 4; ++k) {
    const uint32_t high = p[32 + 2 * j + k / 2] >> (4 * (k % 2)) & 15u;
    put_ternary(kGrid1[p[4 * j + k] | (high & 7u) << 8], (high & 8u) != 0, out->q + 8 * k);
  }
}

}  // namespace emel
