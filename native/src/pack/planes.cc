#include "pack/planes.h"

namespace emel {
namespace {

void set_word(uint8_t* q, size_t j, uint32_t word) { memcpy(q + 4 * j, &word, 4); }

void get_nibbles(const uint8_t* quants, size_t lane, uint8_t* q) {
  for (size_t j = 0; j < 4; ++j) {
    const uint32_t word = get(quants, j, lane);
    set_word(q, j, word & every(15));
    set_word(q, j + 4, word >> 4 & every(15));
  }
}

void get_pairs(const uint8_t* planes, int bit, size_t lane, uint8_t* q) {
  for (size_t j = 0; j < 8; ++j) {
    const uint32_t pair = get(planes, j / 4, lane) >> (2 * (j % 4)) & every(3);
    set_word(q, j, word_of(q, j) | pair << bit);
  }
}

void get_threes(const uint8_t* planes, size_t lane, uint8_t* q) {
  uint32_t upper[3];
  for (size_t v = 0; v < 3; ++v) {
    const uint32_t word = get(planes, v, lane);
    set_word(q, v, word & every(7));
    set_word(q, v + 3, word >> 3 & every(7));
    upper[v] = word >> 6 & every(3);
  }
  set_word(q, 6, upper[0] | (upper[2] & every(1)) << 2);
  set_word(q, 7, upper[1] | (upper[2] & every(2)) << 1);
}

void get_bits(const uint8_t* plane, int bit, size_t lane, uint8_t* q) {
  for (size_t j = 0; j < 8; ++j) {
    set_word(q, j, word_of(q, j) | (get(plane, 0, lane) >> j & every(1)) << bit);
  }
}

void get_field(const uint8_t* quants, size_t field, size_t lane, uint8_t* q) {
  for (size_t j = 0; j < 8; ++j) set_word(q, j, get(quants, j, lane) >> (2 * field) & every(3));
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
      return get_threes(quants, lane, q);
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

}  // namespace

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
