#include "pack/planes.h"

#include <string.h>

#include "kernels/formats.h"

namespace emel {
namespace {

constexpr size_t kVector = 64;

// Four elements of a row, as the four bytes of a vector that are the row's.
uint32_t word_of(const uint8_t* q, size_t j) {
  uint32_t word;
  memcpy(&word, q + 4 * j, 4);
  return word;
}
void set_word(uint8_t* q, size_t j, uint32_t word) { memcpy(q + 4 * j, &word, 4); }

constexpr uint32_t every(uint32_t byte) { return byte * 0x01010101u; }

// The row's word of vector v behind the quants.
void put(uint8_t* quants, size_t v, size_t lane, uint32_t word) { memcpy(quants + v * kVector + lane * 4, &word, 4); }
uint32_t get(const uint8_t* quants, size_t v, size_t lane) {
  uint32_t word;
  memcpy(&word, quants + v * kVector + lane * 4, 4);
  return word;
}

void put_nibbles(const uint8_t* q, uint8_t* quants, size_t lane) {
  for (size_t j = 0; j < 4; ++j) {
    put(quants, j, lane, (word_of(q, j) & every(15)) | (word_of(q, j + 4) & every(15)) << 4);
  }
}
void get_nibbles(const uint8_t* quants, size_t lane, uint8_t* q) {
  for (size_t j = 0; j < 4; ++j) {
    const uint32_t word = get(quants, j, lane);
    set_word(q, j, word & every(15));
    set_word(q, j + 4, word >> 4 & every(15));
  }
}

// Two bits from `bit` on, in two vectors.
void put_pairs(const uint8_t* q, int bit, uint8_t* planes, size_t lane) {
  for (size_t v = 0; v < 2; ++v) {
    uint32_t word = 0;
    for (size_t k = 0; k < 4; ++k) word |= (word_of(q, 4 * v + k) >> bit & every(3)) << (2 * k);
    put(planes, v, lane, word);
  }
}
void get_pairs(const uint8_t* planes, int bit, size_t lane, uint8_t* q) {
  for (size_t j = 0; j < 8; ++j) {
    const uint32_t pair = get(planes, j / 4, lane) >> (2 * (j % 4)) & every(3);
    set_word(q, j, word_of(q, j) | pair << bit);
  }
}

// One bit, in one vector.
void put_bits(const uint8_t* q, int bit, uint8_t* plane, size_t lane) {
  uint32_t word = 0;
  for (size_t j = 0; j < 8; ++j) word |= (word_of(q, j) >> bit & every(1)) << j;
  put(plane, 0, lane, word);
}
void get_bits(const uint8_t* plane, int bit, size_t lane, uint8_t* q) {
  for (size_t j = 0; j < 8; ++j) {
    set_word(q, j, word_of(q, j) | (get(plane, 0, lane) >> j & every(1)) << bit);
  }
}

// Two bits, in a field of their own of eight vectors.
void put_field(const uint8_t* q, size_t field, uint8_t* quants, size_t lane) {
  for (size_t j = 0; j < 8; ++j) put(quants, j, lane, get(quants, j, lane) | (word_of(q, j) & every(3)) << (2 * field));
}
void get_field(const uint8_t* quants, size_t field, size_t lane, uint8_t* q) {
  for (size_t j = 0; j < 8; ++j) set_word(q, j, get(quants, j, lane) >> (2 * field) & every(3));
}

void put_quants(Quants kind, const uint8_t* q, uint8_t* quants, size_t block, size_t lane) {
  switch (kind) {
    case Quants::kBytes:
      for (size_t j = 0; j < 8; ++j) put(quants, j, lane, word_of(q, j));
      return;
    case Quants::kTwo:
      return put_field(q, block % kFields, quants, lane);
    case Quants::kThree:
      put_pairs(q, 0, quants, lane);
      return put_bits(q, 2, quants + 2 * kVector, lane);
    case Quants::kFive:
      put_nibbles(q, quants, lane);
      return put_bits(q, 4, quants + 4 * kVector, lane);
    case Quants::kSix:
      put_nibbles(q, quants, lane);
      return put_pairs(q, 4, quants + 4 * kVector, lane);
    default:
      return put_nibbles(q, quants, lane);
  }
}

void get_quants(Quants kind, const uint8_t* quants, size_t block, size_t lane, uint8_t* q) {
  memset(q, 0, kBlock);
  switch (kind) {
    case Quants::kBytes:
      for (size_t j = 0; j < 8; ++j) set_word(q, j, get(quants, j, lane));
      return;
    case Quants::kTwo:
      return get_field(quants, block % kFields, lane, q);
    case Quants::kThree:
      get_pairs(quants, 0, lane, q);
      return get_bits(quants + 2 * kVector, 2, lane, q);
    case Quants::kFive:
      get_nibbles(quants, lane, q);
      return get_bits(quants + 4 * kVector, 4, lane, q);
    case Quants::kSix:
      get_nibbles(quants, lane, q);
      return get_pairs(quants + 4 * kVector, 4, lane, q);
    default:
      return get_nibbles(quants, lane, q);
  }
}

bool has_second_half(Scales scales) {
  return scales == Scales::kHalfOffset || scales == Scales::kSuperOffset || scales == Scales::kSuperNibbles;
}

}  // namespace

void write_planes(uint32_t type, const BlockValues& values, uint8_t* group, size_t block, size_t lane) {
  const BlockLayout layout(type);
  const Scales scales = layout.format.scales;
  memcpy(group + layout.scale_at(block) + 2 * lane, &values.scale, 2);
  if (has_second_half(scales)) memcpy(group + layout.offset_at(block) + 2 * lane, &values.offset, 2);
  for (size_t half = 0; half < static_cast<size_t>(layout.format.halves); ++half) {
    if (scales == Scales::kSuperNibbles) {
      group[layout.sub_scale_at(block, half) + lane] =
          static_cast<uint8_t>(values.sub_scale[half] | values.sub_offset[half] << 4);
    } else if (scales == Scales::kSuper || scales == Scales::kSuperOffset) {
      group[layout.sub_scale_at(block, half) + lane] = values.sub_scale[half];
    }
    if (scales == Scales::kSuperOffset) group[layout.sub_offset_at(block, half) + lane] = values.sub_offset[half];
  }
  put_quants(layout.format.quants, values.q, group + layout.quants_at(block), block, lane);
}

void read_planes(uint32_t type, const uint8_t* group, size_t block, size_t lane, BlockValues* values) {
  const BlockLayout layout(type);
  const Scales scales = layout.format.scales;
  memcpy(&values->scale, group + layout.scale_at(block) + 2 * lane, 2);
  if (has_second_half(scales)) memcpy(&values->offset, group + layout.offset_at(block) + 2 * lane, 2);
  for (size_t half = 0; half < static_cast<size_t>(layout.format.halves); ++half) {
    if (scales == Scales::kSuperNibbles) {
      const uint8_t both = group[layout.sub_scale_at(block, half) + lane];
      values->sub_scale[half] = both & 15;
      values->sub_offset[half] = both >> 4;
    } else if (scales == Scales::kSuper || scales == Scales::kSuperOffset) {
      values->sub_scale[half] = group[layout.sub_scale_at(block, half) + lane];
    }
    if (scales == Scales::kSuperOffset) values->sub_offset[half] = group[layout.sub_offset_at(block, half) + lane];
  }
  get_quants(layout.format.quants, group + layout.quants_at(block), block, lane, values->q);
}

}  // namespace emel
