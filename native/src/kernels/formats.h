// The block formats: every one is an affine block w = s * (q - zero) + m over 32 (or twice 16) elements. What tells
// them apart is how q is cut into bit planes, how s and m are written, and nothing else.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "emel.h"

namespace emel {
namespace {

constexpr size_t kRowsPerGroup = 16;
constexpr size_t kBlock = 32;
constexpr size_t kCacheLine = 64;
constexpr size_t kSuperBlocks = 8;  // blocks that share a super scale
constexpr size_t kFields = 4;  // blocks of kTwo that share their vectors

constexpr size_t round_up(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

enum class Quants : uint8_t {
  kNibbles,  // 4 bits
  kTable,  // 4 bits that index a table of int8, offset by 128
  kFive,  // nibbles and a plane of one bit
  kSix,  // nibbles and a plane of two bits
  kTwo,  // 2 bits, four blocks in the same bytes
  kThree,  // 3 bits, eight in three bytes
  kBytes,
};

enum class Scales : uint8_t {
  kHalf,  // float16 s
  kHalfOffset,  // float16 s and m
  kBfloat,  // bfloat16 s
  kSuperHalf,  // float16 s for 256 elements
  kSuper,  // float16 d for 256 elements, int8 per block (or half block): s = d * i * fraction
  kSuperOffset,  // float16 d and dmin, uint8 i and j per block: s = d * i, m = -dmin * j
  kSuperNibbles,  // the same with i and j in one byte
};

struct Format {
  Quants quants;
  Scales scales;
  int zero_bits;  // the zero point is 1 << zero_bits; -1: none
  int halves;  // 2: scales for 16 elements each
  float fraction = 1;  // of kSuper scales, a power of two: s = d * i * fraction
};

constexpr Format kNoFormat{Quants::kBytes, Scales::kHalf, -1, 0};

constexpr Format format_of(uint32_t type) {
  switch (type) {
    case EMEL_TYPE_Q4_0:
      return {Quants::kNibbles, Scales::kHalf, 3, 1};
    case EMEL_TYPE_Q4_1:
      return {Quants::kNibbles, Scales::kHalfOffset, -1, 1};
    case EMEL_TYPE_Q5_0:
      return {Quants::kFive, Scales::kHalf, 4, 1};
    case EMEL_TYPE_Q5_1:
      return {Quants::kFive, Scales::kHalfOffset, -1, 1};
    case EMEL_TYPE_Q8_0:
      return {Quants::kBytes, Scales::kHalf, 7, 1};
    case EMEL_TYPE_Q2_K:
      return {Quants::kTwo, Scales::kSuperNibbles, -1, 2};
    case EMEL_TYPE_Q3_K:
      return {Quants::kThree, Scales::kSuper, 2, 2};
    case EMEL_TYPE_Q4_K:
      return {Quants::kNibbles, Scales::kSuperOffset, -1, 1};
    case EMEL_TYPE_Q5_K:
      return {Quants::kFive, Scales::kSuperOffset, -1, 1};
    case EMEL_TYPE_Q6_K:
      return {Quants::kSix, Scales::kSuper, 5, 2};
    case EMEL_TYPE_IQ4_NL:
      return {Quants::kTable, Scales::kHalf, 7, 1};
    case EMEL_TYPE_IQ4_XS:
      return {Quants::kTable, Scales::kSuper, 7, 1};
    case EMEL_TYPE_MXFP4:
      return {Quants::kTable, Scales::kBfloat, 7, 1};
    case EMEL_TYPE_IQ1_S:
    case EMEL_TYPE_IQ2_XXS:
      return {Quants::kTable, Scales::kSuper, 7, 1, 0.125f};
    case EMEL_TYPE_IQ1_M:
    case EMEL_TYPE_IQ2_XS:
    case EMEL_TYPE_IQ2_S:
      return {Quants::kTable, Scales::kSuper, 7, 2, 0.125f};
    case EMEL_TYPE_IQ3_XXS:
      return {Quants::kTable, Scales::kSuper, 7, 1, 0.25f};
    case EMEL_TYPE_IQ3_S:
      return {Quants::kTable, Scales::kSuper, 7, 1};
    case EMEL_TYPE_TQ1_0:
    case EMEL_TYPE_TQ2_0:
      return {Quants::kTwo, Scales::kSuperHalf, 0, 1};
    default:
      return kNoFormat;
  }
}

constexpr bool is_block_type(uint32_t type) { return format_of(type).halves != 0; }
constexpr bool is_float_type(uint32_t type) {
  return type == EMEL_TYPE_F32 || type == EMEL_TYPE_F16 || type == EMEL_TYPE_BF16;
}

constexpr bool has_offset(Scales scales) {
  return scales == Scales::kHalfOffset || scales == Scales::kSuperOffset || scales == Scales::kSuperNibbles;
}
constexpr bool is_super(Scales scales) {
  return scales == Scales::kSuperHalf || scales == Scales::kSuper || scales == Scales::kSuperOffset ||
         scales == Scales::kSuperNibbles;
}

// Largest value of q has this many bits.
constexpr int quant_bits(Quants quants) {
  switch (quants) {
    case Quants::kNibbles:
      return 4;
    case Quants::kFive:
      return 5;
    case Quants::kSix:
      return 6;
    case Quants::kTwo:
      return 2;
    case Quants::kThree:
      return 3;
    default:
      return 8;
  }
}

// Bytes of one block of 32 columns and 16 rows.
constexpr size_t quant_bytes(Quants quants) {
  switch (quants) {
    case Quants::kNibbles:
    case Quants::kTable:
      return 256;
    case Quants::kFive:
      return 320;
    case Quants::kSix:
      return 384;
    case Quants::kTwo:
      return 128;
    case Quants::kThree:
      return 192;
    default:
      return 512;
  }
}

// Where things lie in a row group of a block type: units, read from end to end, each a header of scales and then
// the quants of its blocks. Headers: kHalf and kBfloat two blocks' scales, kHalfOffset one block's scale and offset;
// super formats d, dmin (32 bytes each), then per block and half 16 bytes i, then 16 bytes j for kSuperOffset.
struct BlockLayout {
  Format format;
  size_t unit_blocks;
  size_t header_bytes;
  size_t block_bytes;
  size_t unit_bytes;

  constexpr explicit BlockLayout(uint32_t type)
      : format(format_of(type)),
        unit_blocks(is_super(format.scales)                ? kSuperBlocks
                    : format.scales == Scales::kHalfOffset ? 1
                                                           : 2),
        header_bytes(kCacheLine + sub_scale_bytes() * (format.scales == Scales::kSuperOffset ? 2 : 1)),
        block_bytes(quant_bytes(format.quants)),
        unit_bytes(header_bytes + unit_blocks * block_bytes) {}

  constexpr size_t sub_scale_bytes() const {
    if (!is_super(format.scales) || format.scales == Scales::kSuperHalf) return 0;
    return kSuperBlocks * static_cast<size_t>(format.halves) * kRowsPerGroup;
  }
  constexpr size_t unit_at(size_t block) const { return block / unit_blocks * unit_bytes; }
  constexpr size_t quants_at(size_t block) const {
    const size_t in_unit = block % unit_blocks;
    const size_t first = format.quants == Quants::kTwo ? in_unit / kFields * kFields : in_unit;
    return unit_at(block) + header_bytes + first * block_bytes;
  }
  // float16 s (or bfloat16) of a block, or the super scale d.
  constexpr size_t scale_at(size_t block) const {
    return unit_at(block) + (is_super(format.scales) ? 0 : block % unit_blocks * 32);
  }
  // float16 m, or dmin.
  constexpr size_t offset_at(size_t block) const { return unit_at(block) + 32; }
  // The 16 bytes i of a block's half.
  constexpr size_t sub_scale_at(size_t block, size_t half) const {
    return unit_at(block) + kCacheLine +
           (block % kSuperBlocks * static_cast<size_t>(format.halves) + half) * kRowsPerGroup;
  }
  // The 16 bytes j (kSuperOffset).
  constexpr size_t sub_offset_at(size_t block, size_t half) const {
    return sub_scale_at(block, half) + sub_scale_bytes();
  }
  constexpr size_t group_bytes(size_t n_blocks) const {
    return (n_blocks + unit_blocks - 1) / unit_blocks * unit_bytes;
  }
};

// Values of kTable formats, plus 128. IQ4_NL and IQ4_XS: the non-linear grid of llama.cpp's k-quants author
// (https://github.com/ggml-org/llama.cpp/pull/5590). MXFP4: twice the E2M1 values of the OCP Microscaling
// specification 1.0, table 5 (the scale is halved).
struct Table {
  uint8_t values[16];
};
constexpr Table kNonLinear{{1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241}};
constexpr Table kE2m1{{128, 129, 130, 131, 132, 134, 136, 140, 128, 127, 126, 125, 124, 122, 120, 116}};
// The lattice formats hold magnitudes and signs: entry i + 8 is entry i below zero. IQ1 and IQ2: 8, 25, 43 and, for
// -1, 0, 1 with an eighth more or less, 1, 7, 9; IQ3_XXS and IQ3_S: their eight magnitudes (pack/grid_points.cc).
constexpr Table kLattice12{{136, 153, 171, 129, 135, 137, 128, 128, 120, 103, 85, 127, 121, 119, 128, 128}};
constexpr Table kLattice3Xxs{{132, 140, 148, 156, 164, 172, 180, 190, 124, 116, 108, 100, 92, 84, 76, 66}};
constexpr Table kLattice3S{{129, 131, 133, 135, 137, 139, 141, 143, 127, 125, 123, 121, 119, 117, 115, 113}};
constexpr const Table& table_of(uint32_t type) {
  switch (type) {
    case EMEL_TYPE_MXFP4:
      return kE2m1;
    case EMEL_TYPE_IQ1_S:
    case EMEL_TYPE_IQ1_M:
    case EMEL_TYPE_IQ2_XXS:
    case EMEL_TYPE_IQ2_XS:
    case EMEL_TYPE_IQ2_S:
      return kLattice12;
    case EMEL_TYPE_IQ3_XXS:
      return kLattice3Xxs;
    case EMEL_TYPE_IQ3_S:
      return kLattice3S;
    default:
      return kNonLinear;
  }
}

}  // namespace
}  // namespace emel
