#include "pack/words.h"

#include <string.h>

#include "kernels/formats.h"
#include "kernels/layout.h"

namespace emel {
namespace {

constexpr size_t kVector = 64;

// In the file: the scale, then the offset of the formats that have one, then the quants as n_words words of four
// bytes. Bytes of nibbles pair elements i and i + 16 there, and columns 4 j + i and 4 (j + 4) + i packed: the same.
template <uint32_t kType>
void pack_blocks(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* group) {
  constexpr BlockLayout layout(kType);
  constexpr bool kIsBytes = layout.format.quants == Quants::kBytes;
  constexpr size_t kWords = kIsBytes ? 8 : 4;
  constexpr bool kHasOffset = layout.format.scales == Scales::kHalfOffset;
  constexpr size_t kHead = kHasOffset ? 4 : 2;
  constexpr uint32_t kFlip = kIsBytes ? 0x80808080u : 0;  // signed bytes become q + 128
  const size_t n_blocks = cols / kBlock;
  if (n_blocks % layout.unit_blocks != 0) memset(group, 0, layout.group_bytes(n_blocks));
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

template <class Value>
void pack_floats(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* group) {
  for (size_t k = 0; k < cols; ++k) {
    Value values[kRowsPerGroup];
    for (size_t lane = 0; lane < kRowsPerGroup; ++lane) {
      memcpy(&values[lane], rows + lane * row_bytes + k * sizeof(Value), sizeof(Value));
    }
    memcpy(group + k * sizeof values, values, sizeof values);
  }
}

}  // namespace

bool pack_words(uint32_t type, const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* group) {
  switch (type) {
    case EMEL_TYPE_F32:
      pack_floats<uint32_t>(rows, row_bytes, cols, group);
      return true;
    case EMEL_TYPE_F16:
    case EMEL_TYPE_BF16:
      pack_floats<uint16_t>(rows, row_bytes, cols, group);
      return true;
    case EMEL_TYPE_Q4_0:
      pack_blocks<EMEL_TYPE_Q4_0>(rows, row_bytes, cols, group);
      return true;
    case EMEL_TYPE_Q4_1:
      pack_blocks<EMEL_TYPE_Q4_1>(rows, row_bytes, cols, group);
      return true;
    case EMEL_TYPE_IQ4_NL:
      pack_blocks<EMEL_TYPE_IQ4_NL>(rows, row_bytes, cols, group);
      return true;
    case EMEL_TYPE_Q8_0:
      pack_blocks<EMEL_TYPE_Q8_0>(rows, row_bytes, cols, group);
      return true;
    default:
      return false;
  }
}

}  // namespace emel
