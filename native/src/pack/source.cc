#include "pack/source.h"

#include <string.h>

#include "core/half.h"
#include "kernels/formats.h"
#include "pack/readers.h"
#include "pack/types.h"

namespace emel {
namespace {

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

void read_block(uint32_t type, const uint8_t* row, size_t index, BlockValues* out) {
  for_block_type(type, [&]<uint32_t kType> { read_block_of<kType>(row, index, out); });
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
