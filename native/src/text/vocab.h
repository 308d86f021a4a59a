// A vocabulary: the texts of all tokens and their types, built straight from GGUF's length-prefixed string arrays, and
// the table text -> token every encoder looks its tokens up in.
//
// The table is open-addressing and never more than two thirds full: 8-byte slots of the hash's upper half and id + 1
// (0 marks an empty slot). Of tokens with equal texts the first is found.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "emel_text.h"

namespace emel::text {

inline constexpr uint32_t kNoToken = UINT32_MAX;
inline constexpr uint8_t kSpaceMark[] = {0xe2, 0x96, 0x81};  // U+2581, how SentencePiece writes a space

struct StringSlot {
  uint32_t tag;
  uint32_t id_plus_1;
};

struct Slice {
  const uint8_t* data;
  size_t size;
};

}  // namespace emel::text

struct emel_vocab {
  uint32_t n_tokens;
  uint32_t spelling;  // EMEL_SPELLING_*
  size_t longest;  // bytes of the longest token text
  uint8_t* blob;  // the texts of all tokens, one after the other
  uint32_t* offsets;  // (n_tokens + 1,) into blob
  uint8_t* types;  // (n_tokens,) GGUF token types
  emel::text::StringSlot* strings;
  uint32_t strings_mask;
  uint32_t byte_token[256];  // token of each single byte, or kNoToken
};

namespace emel::text {

inline Slice token_text(const emel_vocab* vocab, uint32_t id) {
  return {vocab->blob + vocab->offsets[id], vocab->offsets[id + 1] - vocab->offsets[id]};
}

// Whether ordinary text may turn into the token.
inline bool is_ordinary(const emel_vocab* vocab, uint32_t id) {
  const uint8_t type = vocab->types[id];
  return type != EMEL_TOKEN_CONTROL && type != EMEL_TOKEN_UNKNOWN && type != EMEL_TOKEN_BYTE;
}

inline uint64_t mix(uint64_t value) {
  value *= 0x9e3779b97f4a7c15u;
  return value ^ (value >> 32);
}

inline uint64_t hash(Slice text) {
  uint64_t state = text.size;
  const uint8_t* data = text.data;
  size_t left = text.size;
  for (; left >= 8; left -= 8, data += 8) {
    uint64_t chunk;
    memcpy(&chunk, data, 8);
    state = mix(state ^ chunk);
  }
  uint64_t tail = 0;
  memcpy(&tail, data, left);
  return mix(mix(state ^ tail));
}

inline bool equals(Slice a, Slice b) { return a.size == b.size && memcmp(a.data, b.data, a.size) == 0; }

// The token whose text is exactly this, whatever its type; kNoToken when there is none.
inline uint32_t find_hashed(const emel_vocab* vocab, Slice text, uint64_t code) {
  const uint32_t tag = static_cast<uint32_t>(code >> 32);
  for (uint64_t slot = code;; ++slot) {
    const StringSlot* entry = &vocab->strings[slot & vocab->strings_mask];
    if (entry->id_plus_1 == 0) return kNoToken;
    if (entry->tag == tag && equals(token_text(vocab, entry->id_plus_1 - 1), text)) return entry->id_plus_1 - 1;
  }
}

inline uint32_t find_token(const emel_vocab* vocab, Slice text) {
  return text.size > vocab->longest ? kNoToken : find_hashed(vocab, text, hash(text));
}

// Slots of a table for n entries: a power of two, at least one and a half times n.
inline uint32_t table_size(uint64_t n) {
  uint32_t size = 16;
  while (size < n + n / 2) size *= 2;
  return size;
}

// Reads GGUF's encoding of an array of strings: each an unsigned 64-bit length and its bytes.
struct StringReader {
  const uint8_t* data;
  uint64_t left;

  bool read(Slice* out) {
    if (left < 8) return false;
    uint64_t size;
    memcpy(&size, data, 8);
    if (size > left - 8) return false;
    *out = {data + 8, static_cast<size_t>(size)};
    data += 8 + size;
    left -= 8 + size;
    return true;
  }
};

// Bytes that a token stands for, to out (room for its text); their number is returned.
size_t write_token(const emel_vocab* vocab, uint32_t id, uint8_t* out);

}  // namespace emel::text
