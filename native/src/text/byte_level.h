// The byte <-> character code of byte-level BPE vocabularies: every byte is written as one printable character, so
// that a token's text never holds a space or a control character. Printable Latin-1 bytes stand for themselves; the
// 68 others take U+0100, U+0101, ... in ascending order (GPT-2, "Language Models are Unsupervised Multitask Learners",
// section 2.2, and its published encoder).
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace emel::text {

struct ByteLevelCode {
  static constexpr uint32_t kCharacters = 0x144;
  uint16_t character_of[256] = {};
  int16_t byte_of[kCharacters] = {};  // -1: stands for no byte

  constexpr ByteLevelCode() {
    for (uint32_t i = 0; i < kCharacters; ++i) byte_of[i] = -1;
    uint16_t next = 0x100;
    for (uint16_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      character_of[byte] = printable ? byte : next++;
      byte_of[character_of[byte]] = static_cast<int16_t>(byte);
    }
  }
};

inline constexpr ByteLevelCode kByteLevelCode;

// Writes the byte's character as UTF-8 to out (room for 2) and returns its length.
inline size_t encode_byte(uint8_t byte, uint8_t* out) {
  const uint32_t character = kByteLevelCode.character_of[byte];
  if (character < 0x80) {
    out[0] = static_cast<uint8_t>(character);
    return 1;
  }
  out[0] = static_cast<uint8_t>(0xc0 | (character >> 6));
  out[1] = static_cast<uint8_t>(0x80 | (character & 0x3f));
  return 2;
}

// Decodes the n bytes of a token's text to out (room for n) and sets n_out. False, with out undefined, when the text
// holds a character that stands for no byte.
inline bool decode_characters(const uint8_t* text, size_t n, uint8_t* out, size_t* n_out) {
  size_t written = 0;
  for (size_t i = 0; i < n; ++i) {
    uint32_t character = text[i];
    if (character >= 0x80) {
      if (character < 0xc2 || character > 0xc5 || i + 1 == n || (text[i + 1] & 0xc0) != 0x80) return false;
      character = (character & 0x1f) << 6 | (text[++i] & 0x3f);
    }
    if (character >= ByteLevelCode::kCharacters || kByteLevelCode.byte_of[character] < 0) return false;
    out[written++] = static_cast<uint8_t>(kByteLevelCode.byte_of[character]);
  }
  *n_out = written;
  return true;
}

}  // namespace emel::text
