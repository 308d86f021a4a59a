// Little-endian words at any address.
#pragma once

#include <stdint.h>
#include <string.h>

namespace emel {

inline uint16_t read_u16(const uint8_t* p) {
  uint16_t value;
  memcpy(&value, p, 2);
  return value;
}

inline uint32_t read_u32(const uint8_t* p) {
  uint32_t value;
  memcpy(&value, p, 4);
  return value;
}

}  // namespace emel
