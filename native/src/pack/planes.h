// One row's block into a row group's bit planes (kernels/layout.h), inlined, and back.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/formats.h"
#include "pack/source.h"

namespace emel {

void read_planes(uint32_t type, const uint8_t* group, size_t block, size_t lane, BlockValues* values);

namespace {

constexpr size_t kVector = 64;

// Four elements of a row, as the four bytes of a vector that are the row's.
inline uint32_t word_of(const uint8_t* q, size_t j) {
  uint32_t word;
  memcpy(&word, q + 4 * j, 4);
  return word;
}

constexpr uint32_t every(uint32_t byte) { return byte * 0x01010101u; }

// The row's word of vector v behind the quants.
inline uint32_t get(const uint8_t* quants, size_t v, size_t lane) {
  uint32_t word;
  memcpy(&word, quants + v * kVector + lane * 4, 4);
  return word;
}
inline void put(uint8_t* quants, size_t v, size_t lane, uint32_t word) {
  memcpy(quants + v * kVector + lane * 4, &word, 4);
}

inline void put_nibbles(const uint8_t* q, uint8_t* quants, size_t lane) {
  for (size_t j = 0; j < 4; ++j) {
    put(quants, j, lane, (word_of(q, j) & every(15)) | (word_of(q, j + 4) & every(15)) << 4);
  }
}

// Two bits from `bit` on, in two vectors.
inline void put_pairs(const uint8_t* q, int bit, uint8_t* planes, size_t lane) {
  for (size_t v = 0; v < 2; ++v) {
    uint32_t word = 0;
    for (size_t k = 0; k < 4; ++k) word |= (word_of(q, 4 * v + k) >> bit & every(3)) << (2 * k);
    put(planes, v, lane, word);
  }
}

// One bit, in one vector.
inline void put_bits(const uint8_t* q, int bit, uint8_t* plane, size_t lane) {
  uint32_t word = 0;
  for (size_t j = 0; j < 8; ++j) word |= (word_of(q, j) >> bit & every(1)) << j;
  put(plane, 0, lane, word);
}

// Three bits: j and j + 3 in vector j of three, whose upper two bits are those of 6 and 7: two, two, a third of each.
inline void put_threes(const uint8_t* q, uint8_t* planes, size_t lane) {
  const uint32_t six = word_of(q, 6);
  const uint32_t seven = word_of(q, 7);
  const uint32_t upper[3] = {six & every(3), seven & every(3), (six >> 2 & every(1)) | (seven >> 1 & every(2))};
  for (size_t v = 0; v < 3; ++v) {
    put(planes, v, lane, (word_of(q, v) & every(7)) | (word_of(q, v + 3) & every(7)) << 3 | upper[v] << 6);
  }
}

// Two bits, in a field of their own of eight vectors.
inline void put_field(const uint8_t* q, size_t field, uint8_t* quants, size_t lane) {
  for (size_t j = 0; j < 8; ++j) put(quants, j, lane, get(quants, j, lane) | (word_of(q, j) & every(3)) << (2 * field));
}

template <Quants kKind>
void put_quants(const uint8_t* q, uint8_t* quants, size_t block, size_t lane) {
  if constexpr (kKind == Quants::kBytes) {
    for (size_t j = 0; j < 8; ++j) put(quants, j, lane, word_of(q, j));
  } else if constexpr (kKind == Quants::kTwo) {
    put_field(q, block % kFields, quants, lane);
  } else if constexpr (kKind == Quants::kThree) {
    put_threes(q, quants, lane);
  } else {
    static_assert(kKind == Quants::kNibbles || kKind == Quants::kTable || kKind == Quants::kFive ||
                  kKind == Quants::kSix);
    put_nibbles(q, quants, lane);
    if constexpr (kKind == Quants::kFive) put_bits(q, 4, quants + 4 * kVector, lane);
    if constexpr (kKind == Quants::kSix) put_pairs(q, 4, quants + 4 * kVector, lane);
  }
}

constexpr bool has_second_half(Scales scales) {
  return scales == Scales::kHalfOffset || scales == Scales::kSuperOffset || scales == Scales::kSuperNibbles;
}

// lane: the row's place in its group. Quants that blocks share (kTwo) are added to what is there: zeros at first.
template <uint32_t kType>
void write_planes(const BlockValues& values, uint8_t* group, size_t block, size_t lane) {
  constexpr BlockLayout kLayout(kType);
  constexpr Scales kScales = kLayout.format.scales;
  memcpy(group + kLayout.scale_at(block) + 2 * lane, &values.scale, 2);
  if constexpr (has_second_half(kScales)) memcpy(group + kLayout.offset_at(block) + 2 * lane, &values.offset, 2);
  for (size_t half = 0; half < static_cast<size_t>(kLayout.format.halves); ++half) {
    if constexpr (kScales == Scales::kSuperNibbles) {
      group[kLayout.sub_scale_at(block, half) + lane] =
          static_cast<uint8_t>(values.sub_scale[half] | values.sub_offset[half] << 4);
    } else if constexpr (kScales == Scales::kSuper || kScales == Scales::kSuperOffset) {
      group[kLayout.sub_scale_at(block, half) + lane] = values.sub_scale[half];
    }
    if constexpr (kScales == Scales::kSuperOffset) {
      group[kLayout.sub_offset_at(block, half) + lane] = values.sub_offset[half];
    }
  }
  put_quants<kLayout.format.quants>(values.q, group + kLayout.quants_at(block), block, lane);
}

}  // namespace
}  // namespace emel
