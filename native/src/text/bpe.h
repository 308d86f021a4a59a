// Byte-level BPE: a vocabulary and a merge table, both built straight from GGUF's length-prefixed string arrays.
//
// Two open-addressing tables, never more than two thirds full:
//   strings  token text -> id        8-byte slots: the hash's upper half, id + 1 (0 marks an empty slot)
//   merges   (left, right) -> merge  16-byte slots; the rank is the merge's place in the file, the first of equals wins
// A merge whose parts or whole are no tokens can never take part in an encoding and is left out.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "emel.h"

namespace emel::text {

inline constexpr uint32_t kNoToken = UINT32_MAX;

struct StringSlot {
  uint32_t tag;
  uint32_t id_plus_1;
};

struct MergeSlot {
  uint32_t left_plus_1;
  uint32_t right;
  uint32_t rank;
  uint32_t merged;
};

struct Slice {
  const uint8_t* data;
  size_t size;
};

}  // namespace emel::text

struct emel_bpe {
  uint32_t n_tokens;
  bool ignore_merges;
  size_t longest;  // bytes of the longest token text
  uint8_t* blob;  // the texts of all tokens, one after the other
  uint32_t* offsets;  // (n_tokens + 1,) into blob
  uint8_t* types;  // (n_tokens,) GGUF token types
  emel::text::StringSlot* strings;
  uint32_t strings_mask;
  emel::text::MergeSlot* merges;
  uint32_t merges_mask;
  uint32_t byte_token[256];  // token of each single byte, or kNoToken
};

namespace emel::text {

inline Slice token_text(const emel_bpe* bpe, uint32_t id) {
  return {bpe->blob + bpe->offsets[id], bpe->offsets[id + 1] - bpe->offsets[id]};
}

// Fill the allocated tables of a vocabulary from GGUF's arrays, tokens first.
emel_status read_tokens(emel_bpe* bpe, const emel_bpe_desc& desc);
emel_status read_merges(emel_bpe* bpe, const emel_bpe_desc& desc);

// The token whose text is exactly this, whatever its type; kNoToken when there is none.
uint32_t find_token(const emel_bpe* bpe, Slice text);

inline uint64_t mix(uint64_t value) {
  value *= 0x9e3779b97f4a7c15u;
  return value ^ (value >> 32);
}

// The merge of two adjacent symbols, or nullptr.
inline const MergeSlot* find_merge(const emel_bpe* bpe, uint32_t left, uint32_t right) {
  uint64_t slot = mix(static_cast<uint64_t>(left) << 32 | right);
  for (;; ++slot) {
    const MergeSlot* merge = &bpe->merges[slot & bpe->merges_mask];
    if (merge->left_plus_1 == 0) return nullptr;
    if (merge->left_plus_1 == left + 1 && merge->right == right) return merge;
  }
}

// Encodes one word (not empty): its bytes, then merge after merge, lowest rank first, leftmost among equals. Writes at
// most word.size ids; bytes without a token are left out. Fails only when memory is out.
emel_status encode_word(const emel_bpe* bpe, Slice word, int32_t* ids, size_t* n_ids);

}  // namespace emel::text
