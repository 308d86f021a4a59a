// Unigram language models (Kudo 2018): of all ways to put a text together from tokens, the one of the highest score.
#pragma once

#include <stdint.h>

#include "emel_text.h"
#include "text/trie.h"

namespace emel::text {

// SentencePiece's precompiled_charsmap: replacements of characters, found by a double array of 32-bit units
// (https://github.com/s-yata/darts-clone, include/darts.h), after it the replacements, each ending with a zero byte.
struct Charsmap {
  const uint8_t* units;  // little-endian, not aligned
  uint32_t n_units;
  const uint8_t* replacements;
  size_t n_replacement_bytes;
};

// What the beginning of a text (n > 0 bytes) becomes, and how many bytes of it are used up.
struct Normalized {
  Slice text;
  size_t consumed;
};

Normalized normalize_prefix(const Charsmap& charsmap, const uint8_t* text, size_t n);

}  // namespace emel::text

struct emel_unigram {
  const emel_trie* trie;
  double* scores;  // (n_tokens,)
  double unknown_score;
  uint32_t unknown;  // or kNoToken
  uint32_t flags;  // EMEL_UNIGRAM_*
  bool falls_back_to_bytes;
  uint8_t* charsmap_data;
  emel::text::Charsmap charsmap;
};
