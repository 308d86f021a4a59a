#include "pack/rows.h"

#include <string.h>

#include "kernels/formats.h"
#include "kernels/layout.h"
#include "pack/planes.h"
#include "pack/readers.h"
#include "pack/types.h"

namespace emel {
namespace {

// Whether the packed words lie in the file as they are.
constexpr bool is_words(uint32_t type) {
  return type == EMEL_TYPE_Q4_0 || type == EMEL_TYPE_Q4_1 || type == EMEL_TYPE_IQ4_NL || type == EMEL_TYPE_Q8_0;
}

// In the file: the scale, then the offset of the formats that have one, then the quants as n_words words of four
// bytes. Bytes of nibbles pair elements i and i + 16 there, and columns 4 j + i and 4 (j + 4) + i packed: the same.
template <uint32_t kType>
void pack_words(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* group) {
  constexpr BlockLayout layout(kType);
  constexpr bool kIsBytes = layout.format.quants == Quants::kBytes;
  constexpr size_t kWords = kIsBytes ? 8 : 4;
  constexpr bool kHasOffset = layout.format.scales == Scales::kHalfOffset;
  constexpr size_t kHead = kHasOffset ? 4 : 2;
  constexpr uint32_t kFlip = kIsBytes ? 0x80808080u : 0;  // signed bytes become q + 128
  const size_t n_blocks = cols / kBlock;
  for (size_t b = 0; b < n_blocks; ++b) {
    uint8_t* scales = group + layout.scale_at(b);
    uint8_t* offsets = group + layout.offset_at(b);
    uint8_t* quants = group + layout.quants_at(b);
    const uint8_t* block = rows + b * (kHead + 4 * kWords);
    for (size_t lane = 0; lane < kRowsPerGroup; ++lane, block += row_bytes) {
      memcpy(scales + 2 * lane, block, 2);
      if (kHasOffset) memcpy(offsets + 2 * lane, block + 2, 2);
      for (size_t j = 0; j < kWords; ++j) {
        uint32_t word;
        memcpy(&word, block + kHead + 4 * j, 4);
        word ^= kFlip;
        memcpy(quants + j * kVector + 4 * lane, &word, 4);
      }
    }
  }
}

template <uint32_t kType>
void pack_blocks(const uint8_t* rows, size_t n_rows, size_t row_bytes, size_t cols, uint8_t* group) {
  for (size_t b = 0; b < cols / kBlock; ++b) {
    for (size_t lane = 0; lane < n_rows; ++lane) {
      BlockValues values;
      read_block_of<kType>(rows + lane * row_bytes, b, &values);
      write_planes<kType>(values, group, b, lane);
    }
  }
}

template <uint32_t kType>
void pack_block_type(const uint8_t* rows, size_t n_rows, size_t row_bytes, size_t cols, uint8_t* group) {
  constexpr BlockLayout kLayout(kType);
  const size_t n_blocks = cols / kBlock;
  const bool is_whole = n_rows == kRowsPerGroup && n_blocks % kLayout.unit_blocks == 0;
  if (!is_whole || kLayout.format.quants == Quants::kTwo) memset(group, 0, kLayout.group_bytes(n_blocks));
  if constexpr (is_words(kType)) {
    if (n_rows == kRowsPerGroup) return pack_words<kType>(rows, row_bytes, cols, group);
  }
  pack_blocks<kType>(rows, n_rows, row_bytes, cols, group);
}

constexpr size_t kTile = 64;  // columns of a row that are moved before the next row's: a cache line or more

template <class Value>
void pack_floats(const uint8_t* rows, size_t n_rows, size_t row_bytes, size_t cols, uint8_t* group) {
  if (n_rows < kRowsPerGroup) memset(group, 0, cols * kRowsPerGroup * sizeof(Value));
  for (size_t begin = 0; begin < cols; begin += kTile) {
    const size_t end = begin + kTile < cols ? begin + kTile : cols;
    for (size_t lane = 0; lane < n_rows; ++lane) {
      const uint8_t* row = rows + lane * row_bytes;
      for (size_t k = begin; k < end; ++k) {
        Value value;
        memcpy(&value, row + k * sizeof value, sizeof value);
        memcpy(group + (k * kRowsPerGroup + lane) * sizeof value, &value, sizeof value);
      }
    }
  }
}

}  // namespace

void pack_rows(uint32_t type, const uint8_t* rows, size_t n_rows, size_t row_bytes, size_t cols, uint8_t* group) {
  if (type == EMEL_TYPE_F32) return pack_floats<uint32_t>(rows, n_rows, row_bytes, cols, group);
  if (is_float_type(type)) return pack_floats<uint16_t>(rows, n_rows, row_bytes, cols, group);
  for_block_type(type, [&]<uint32_t kType> { pack_block_type<kType>(rows, n_rows, row_bytes, cols, group); });
}

}  // namespace emel
