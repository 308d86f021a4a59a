// BPE over a vocabulary: a table of merges, (left, right) -> merge, of 16-byte slots, open-addressing and never more
// than two thirds full. The rank is the merge's place in the file; the first of equals wins. A merge whose parts or
// whole are no tokens can never take part in an encoding and is left out.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "emel_text.h"
#include "text/vocab.h"

namespace emel::text {

struct MergeSlot {
  uint32_t left_plus_1;
  uint32_t right;
  uint32_t rank;
  uint32_t merged;
};

}  // namespace emel::text

struct emel_bpe {
  const emel_vocab* vocab;
  bool ignore_merges;
  uint32_t unknown;  // the token of a byte that has none, or kNoToken
  emel::text::MergeSlot* merges;
  uint32_t merges_mask;
};

namespace emel::text {

// Fills the allocated table of merges from GGUF's array.
emel_status read_merges(emel_bpe* bpe, const emel_bpe_desc& desc);

// The merge of two adjacent symbols, or nullptr.
inline const MergeSlot* find_merge(const emel_bpe* bpe, uint32_t left, uint32_t right) {
  uint64_t slot = mix(static_cast<uint64_t>(left) << 32 | right);
  for (;; ++slot) {
    const MergeSlot* merge = &bpe->merges[slot & bpe->merges_mask];
    if (merge->left_plus_1 == 0) return nullptr;
    if (merge->left_plus_1 == left + 1 && merge->right == right) return merge;
  }
}

// Encodes one word (not empty) into at most word.size ids. Bytes without a token become the unknown token, or are left
// out where there is none. Fails only when memory is out.
emel_status encode_word(const emel_bpe* bpe, Slice word, int32_t* ids, size_t* n_ids);

}  // namespace emel::text
