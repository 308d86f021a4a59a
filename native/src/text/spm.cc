#include "text/spm.h"

#include <string.h>

#include "core/allocation.h"
#include "core/error.h"
#include "text/merge.h"
#include "text/utf8.h"

namespace emel::text {
namespace {

// Descending as the score ascends, over all floats; the two zeros are equal.
uint32_t rank_of(float score) {
  score += 0.0f;
  uint32_t bits;
  memcpy(&bits, &score, sizeof bits);
  const uint32_t ascending = bits >> 31 ? ~bits : bits | 0x80000000u;
  return ~ascending;
}

bool is_mark(const uint8_t* text, size_t n) {
  return n >= sizeof kSpaceMark && memcmp(text, kSpaceMark, sizeof kSpaceMark) == 0;
}

// Nothing merges across a border that is inside no token. The one worth knowing is between a word and the space before
// the next: it makes words of a text, which are short.
void find_joined_marks(emel_spm* spm) {
  const emel_vocab* vocab = spm->vocab;
  for (uint32_t id = 0; id < vocab->n_tokens; ++id) {
    if (!is_ordinary(vocab, id)) continue;
    const Slice text = token_text(vocab, id);
    for (size_t i = 1; i < text.size; ++i) {
      if (text.data[i] == kSpaceMark[0] && is_mark(text.data + i, text.size - i)) {
        spm->joins_mark_after[text.data[i - 1]] = true;
      }
    }
  }
}

struct Pieces {
  const emel_spm* spm;

  uint32_t find(Slice text) const {
    const uint32_t id = find_token(spm->vocab, text);
    return id != kNoToken && is_ordinary(spm->vocab, id) ? id : kNoToken;
  }

  uint32_t first_unit(const uint8_t* text, size_t n, size_t* size) const {
    *size = unit_size(text, n);
    return find({text, *size});
  }

  Merge join(uint32_t, uint32_t, Slice joined) const {
    const uint32_t id = find(joined);
    return id == kNoToken ? Merge{kNoRank, kNoToken} : Merge{spm->ranks[id], id};
  }

  size_t write(uint32_t symbol, Slice text, int32_t* ids) const {
    if (symbol != kNoToken) {
      ids[0] = static_cast<int32_t>(symbol);
      return 1;
    }
    for (size_t i = 0; i < text.size; ++i) {
      const uint32_t id = spm->vocab->byte_token[text.data[i]];
      if (id == kNoToken) {
        ids[0] = static_cast<int32_t>(spm->unknown);
        return spm->unknown == kNoToken ? 0 : 1;
      }
      ids[i] = static_cast<int32_t>(id);
    }
    return text.size;
  }
};

// The end of the stretch from begin on that nothing can merge out of.
size_t end_of_word(const emel_spm* spm, Slice text, size_t begin) {
  for (size_t i = begin + 1; i < text.size; ++i) {
    if (text.data[i] != kSpaceMark[0] || spm->joins_mark_after[text.data[i - 1]]) continue;
    if (is_mark(text.data + i, text.size - i)) return i;
  }
  return text.size;
}

// Characters that are unknown one after the other are one unknown token, as SentencePiece has it.
size_t join_unknown(const emel_spm* spm, int32_t* ids, size_t n) {
  const int32_t unknown = static_cast<int32_t>(spm->unknown);
  if (spm->unknown == kNoToken || n == 0) return n;
  size_t written = 1;
  for (size_t i = 1; i < n; ++i) {
    if (ids[i] != unknown || ids[i - 1] != unknown) ids[written++] = ids[i];
  }
  return written;
}

}  // namespace
}  // namespace emel::text

using namespace emel;
using namespace emel::text;

emel_status emel_spm_create(const emel_vocab* vocab, const float* scores, int32_t unknown, emel_spm** out) {
  if (vocab == nullptr || scores == nullptr || out == nullptr) {
    return fail(EMEL_INVALID_ARGUMENT, "emel_spm_create: a null argument");
  }
  *out = nullptr;
  if (unknown >= 0 && static_cast<uint32_t>(unknown) >= vocab->n_tokens) {
    return fail(EMEL_OUT_OF_BOUNDS, "the unknown token %d is outside the vocabulary", unknown);
  }
  emel_spm* spm = allocate_array<emel_spm>(1);
  uint32_t* ranks = allocate_array<uint32_t>(vocab->n_tokens);
  if (spm == nullptr || ranks == nullptr) {
    release(spm);
    release(ranks);
    return fail(EMEL_OUT_OF_MEMORY, "no memory for the scores of %u tokens", vocab->n_tokens);
  }
  spm->vocab = vocab;
  spm->unknown = unknown >= 0 ? static_cast<uint32_t>(unknown) : kNoToken;
  spm->ranks = ranks;
  for (uint32_t id = 0; id < vocab->n_tokens; ++id) {
    ranks[id] = is_ordinary(vocab, id) ? rank_of(scores[id]) : kNoRank;
  }
  find_joined_marks(spm);
  *out = spm;
  return EMEL_OK;
}

void emel_spm_destroy(emel_spm* spm) {
  if (spm == nullptr) return;
  release(spm->ranks);
  release(spm);
}

emel_status emel_spm_encode(const emel_spm* spm, const uint8_t* text, uint64_t n_bytes, int32_t* ids, uint64_t capacity,
                            uint64_t* n_ids) {
  if (!spm || !n_ids || (n_bytes > 0 && (!text || !ids))) {
    return fail(EMEL_INVALID_ARGUMENT, "emel_spm_encode: a null argument");
  }
  *n_ids = 0;
  if (n_bytes > INT32_MAX) {
    return fail(EMEL_UNSUPPORTED, "a text of %llu bytes; at most 2147483647", static_cast<unsigned long long>(n_bytes));
  }
  if (capacity < n_bytes) return fail(EMEL_OUT_OF_BOUNDS, "emel_spm_encode: room for fewer ids than bytes");
  const Slice whole{text, static_cast<size_t>(n_bytes)};
  size_t written = 0;
  for (size_t begin = 0; begin < n_bytes;) {
    const size_t end = end_of_word(spm, whole, begin);
    size_t n = 0;
    if (emel_status status = encode_by_merging(Pieces{spm}, {text + begin, end - begin}, ids + written, &n)) {
      return status;
    }
    written += n;
    begin = end;
  }
  *n_ids = join_unknown(spm, ids, written);
  return EMEL_OK;
}
