// Characters of UTF-8 that may be invalid: a byte that begins no valid character is a unit of its own.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace emel::text {

inline bool is_continuation(uint8_t byte) { return (byte & 0xc0) == 0x80; }

// Bytes of the valid character (Unicode 15, table 3-7) that the n > 0 bytes at text begin with; 0 if there is none.
inline size_t valid_character_size(const uint8_t* text, size_t n) {
  const uint8_t lead = text[0];
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4 || n < 2) return 0;
  const uint8_t lowest = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const uint8_t highest = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  if (text[1] < lowest || text[1] > highest) return 0;
  if (lead < 0xe0) return 2;
  if (n < 3 || !is_continuation(text[2])) return 0;
  if (lead < 0xf0) return 3;
  return n >= 4 && is_continuation(text[3]) ? 4 : 0;
}

// Bytes of the unit at text: a valid character, or one byte.
inline size_t unit_size(const uint8_t* text, size_t n) {
  const size_t size = valid_character_size(text, n);
  return size == 0 ? 1 : size;
}

}  // namespace emel::text
