// IEEE binary16 to and from binary32 in integer arithmetic: round half to even, as the hardware converts.
#pragma once

#include <stdint.h>
#include <string.h>

namespace emel {
namespace {

inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  uint32_t exponent = (half >> 10) & 31u;
  uint32_t fraction = half & 1023u;
  uint32_t bits;
  if (exponent == 31) {  // infinity; a NaN comes out quiet, as vcvtph2ps makes it
    bits = sign | 0x7f800000u | fraction << 13 | (fraction != 0 ? 0x400000u : 0u);
  } else if (exponent != 0) {
    bits = sign | (exponent + 112) << 23 | fraction << 13;
  } else if (fraction == 0) {
    bits = sign;
  } else {  // subnormal: normalise
    exponent = 113;
    while ((fraction & 1024u) == 0) {
      fraction <<= 1;
      --exponent;
    }
    bits = sign | exponent << 23 | (fraction & 1023u) << 13;
  }
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint16_t float_to_half(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u | static_cast<uint16_t>(magnitude >> 13 & 0x3ffu);
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // rounds to 65536 or more
  uint32_t shift = 13;
  uint32_t rounded_from = magnitude - (112u << 23);
  if (magnitude < 0x38800000u) {  // below 2^-14: a subnormal half
    if (magnitude < 0x33000000u) return sign;  // below 2^-25
    shift = 126 - (magnitude >> 23);
    rounded_from = (magnitude & 0x7fffffu) | 0x800000u;
  }
  const uint32_t kept = rounded_from >> shift;
  const uint32_t dropped = rounded_from & ((1u << shift) - 1u);
  const uint32_t tie = 1u << (shift - 1);
  const uint32_t up = dropped > tie || (dropped == tie && (kept & 1u)) ? 1u : 0u;
  return static_cast<uint16_t>(sign | (kept + up));
}

}  // namespace
}  // namespace emel
