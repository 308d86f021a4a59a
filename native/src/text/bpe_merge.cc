// How BPE merges: its units are bytes in byte-level vocabularies, characters in the others.
#include "text/bpe.h"
#include "text/byte_level.h"
#include "text/merge.h"
#include "text/utf8.h"

namespace emel::text {
namespace {

struct Merges {
  const emel_bpe* bpe;

  Merge join(uint32_t left, uint32_t right, Slice) const {
    const MergeSlot* merge = find_merge(bpe, left, right);
    return merge ? Merge{merge->rank, merge->merged} : Merge{kNoRank, kNoToken};
  }

  size_t write_id(uint32_t id, int32_t* ids) const {
    if (id == kNoToken) id = bpe->unknown;
    if (id == kNoToken) return 0;
    *ids = static_cast<int32_t>(id);
    return 1;
  }
};

struct Bytes : Merges {
  uint32_t first_unit(const uint8_t* text, size_t, size_t* size) const {
    *size = 1;
    return bpe->vocab->byte_token[*text];
  }

  size_t write(uint32_t symbol, Slice, int32_t* ids) const { return write_id(symbol, ids); }
};

struct Characters : Merges {
  uint32_t first_unit(const uint8_t* text, size_t n, size_t* size) const {
    *size = unit_size(text, n);
    const uint32_t id = find_token(bpe->vocab, {text, *size});
    return id != kNoToken && is_ordinary(bpe->vocab, id) ? id : kNoToken;
  }

  size_t write(uint32_t symbol, Slice text, int32_t* ids) const {
    if (symbol != kNoToken) return write_id(symbol, ids);
    size_t written = 0;
    for (size_t i = 0; i < text.size; ++i) written += write_id(bpe->vocab->byte_token[text.data[i]], ids + written);
    return written;
  }
};

// The token that is the whole word, unless it is one that text must never turn into.
uint32_t whole_word(const emel_bpe* bpe, Slice word) {
  constexpr size_t kLongestWord = 512;
  uint8_t text[2 * kLongestWord];
  if (word.size > kLongestWord || word.size > bpe->vocab->longest) return kNoToken;
  uint32_t id;
  if (bpe->vocab->spelling == EMEL_SPELLING_BYTE_LEVEL) {
    size_t n = 0;
    for (size_t i = 0; i < word.size; ++i) n += encode_byte(word.data[i], text + n);
    id = find_token(bpe->vocab, {text, n});
  } else {
    id = find_token(bpe->vocab, word);
  }
  return id != kNoToken && is_ordinary(bpe->vocab, id) ? id : kNoToken;
}

}  // namespace

emel_status encode_word(const emel_bpe* bpe, Slice word, int32_t* ids, size_t* n_ids) {
  if (bpe->ignore_merges) {
    const uint32_t id = whole_word(bpe, word);
    if (id != kNoToken) {
      ids[0] = static_cast<int32_t>(id);
      *n_ids = 1;
      return EMEL_OK;
    }
  }
  if (bpe->vocab->spelling != EMEL_SPELLING_BYTE_LEVEL) return encode_by_merging(Characters{bpe}, word, ids, n_ids);
  return encode_by_merging(Bytes{bpe}, word, ids, n_ids);
}

}  // namespace emel::text
