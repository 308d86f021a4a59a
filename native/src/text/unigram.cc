#include "text/unigram.h"

#include <float.h>
#include <string.h>

#include <algorithm>

#include "core/allocation.h"
#include "core/error.h"
#include "text/utf8.h"

namespace emel::text {
namespace {

constexpr double kUnknownPenalty = 10.0;  // below the lowest score (SentencePiece's kUnkPenalty)

// Bytes that are appended one after the other.
struct Buffer {
  uint8_t* data = nullptr;
  size_t size = 0;
  size_t capacity = 0;
  bool is_full = false;  // memory was out: the rest is missing

  void append(const uint8_t* bytes, size_t n) {
    if (is_full) return;
    if (n > capacity - size) {
      const size_t larger = 2 * capacity + n + 64;
      uint8_t* moved = allocate_array<uint8_t>(larger);
      if (moved == nullptr) {
        is_full = true;
        return;
      }
      if (size > 0) memcpy(moved, data, size);
      release(data);
      data = moved;
      capacity = larger;
    }
    memcpy(data + size, bytes, n);
    size += n;
  }
  void append_mark() { append(kSpaceMark, sizeof kSpaceMark); }
  bool ends_with_mark() const {
    return size >= sizeof kSpaceMark && memcmp(data + size - sizeof kSpaceMark, kSpaceMark, sizeof kSpaceMark) == 0;
  }
};

// SentencePiece's normalizer.cc: characters are replaced, spaces become marks, one at most in a row and none at the
// ends where extra ones are removed, and one is added in front.
void normalize(const emel_unigram* unigram, Slice text, Buffer* out) {
  const bool removes_extra = unigram->flags & EMEL_UNIGRAM_REMOVE_EXTRA_SPACES;
  size_t at = 0;
  while (removes_extra && at < text.size) {
    const Normalized prefix = normalize_prefix(unigram->charsmap, text.data + at, text.size - at);
    if (prefix.text.size != 1 || prefix.text.data[0] != ' ') break;
    at += prefix.consumed;
  }
  if (at == text.size) return;
  if (unigram->flags & EMEL_UNIGRAM_ADD_SPACE) out->append_mark();
  bool is_after_space = removes_extra;
  while (at < text.size) {
    const Normalized prefix = normalize_prefix(unigram->charsmap, text.data + at, text.size - at);
    size_t i = 0;
    while (is_after_space && i < prefix.text.size && prefix.text.data[i] == ' ') ++i;
    if (i < prefix.text.size) {
      for (; i < prefix.text.size; ++i) {
        if (prefix.text.data[i] == ' ') out->append_mark();
        else out->append(prefix.text.data + i, 1);
      }
      is_after_space = removes_extra && prefix.text.data[prefix.text.size - 1] == ' ';
    }
    at += prefix.consumed;
  }
  while (removes_extra && out->ends_with_mark()) out->size -= sizeof kSpaceMark;
}

// The best way to put together the text up to a place.
struct Best {
  double score;
  uint32_t begin;  // of its last token
  uint32_t id;  // kNoToken: unknown
};

void find_best(const emel_unigram* unigram, Slice text, Best* best) {
  for (size_t i = 0; i <= text.size; ++i) best[i] = {-DBL_MAX, 0, kNoToken};
  best[0].score = 0;
  const auto offer = [&](size_t begin, size_t size, double score, uint32_t id) {
    Best* at_end = &best[begin + size];
    if (best[begin].score + score > at_end->score) {
      *at_end = {best[begin].score + score, static_cast<uint32_t>(begin), id};
    }
  };
  for (size_t begin = 0; begin < text.size;) {
    const size_t unit = unit_size(text.data + begin, text.size - begin);
    bool is_known = false;
    find_all(unigram->trie, text.data + begin, text.size - begin, [&](size_t size, uint32_t id) {
      is_known = is_known || size == unit;
      offer(begin, size, unigram->scores[id], id);
    });
    if (!is_known) offer(begin, unit, unigram->unknown_score, kNoToken);
    begin += unit;
  }
}

// Unknown characters: their bytes, or one unknown token for all that stand in a row.
size_t write_best(const emel_unigram* unigram, Slice text, const Best* best, int32_t* ids) {
  size_t n = 0;
  bool is_after_unknown = false;
  for (size_t end = text.size; end > 0; end = best[end].begin) {  // backwards
    const bool is_unknown = best[end].id == kNoToken;
    if (!is_unknown) {
      ids[n++] = static_cast<int32_t>(best[end].id);
    } else if (unigram->falls_back_to_bytes) {
      for (size_t i = end; i > best[end].begin; --i) {
        ids[n++] = static_cast<int32_t>(unigram->trie->vocab->byte_token[text.data[i - 1]]);
      }
    } else if (!is_after_unknown && unigram->unknown != kNoToken) {
      ids[n++] = static_cast<int32_t>(unigram->unknown);
    }
    is_after_unknown = is_unknown;
  }
  std::reverse(ids, ids + n);
  return n;
}

void set_scores(emel_unigram* unigram, const float* scores) {
  const emel_vocab* vocab = unigram->trie->vocab;
  double lowest = DBL_MAX;
  for (uint32_t id = 0; id < vocab->n_tokens; ++id) {
    if (vocab->types[id] == EMEL_TOKEN_NORMAL) lowest = std::min<double>(lowest, scores[id]);
    unigram->scores[id] = vocab->types[id] == EMEL_TOKEN_USER_DEFINED ? 0.0 : scores[id];
  }
  unigram->unknown_score = (lowest == DBL_MAX ? 0.0 : lowest) - kUnknownPenalty;
  unigram->falls_back_to_bytes = true;
  for (const uint32_t id : vocab->byte_token) {
    if (id == kNoToken || vocab->types[id] != EMEL_TOKEN_BYTE) unigram->falls_back_to_bytes = false;
  }
}

emel_status set_charsmap(emel_unigram* unigram, const uint8_t* data, uint64_t n_bytes) {
  if (n_bytes == 0) return EMEL_OK;
  uint32_t n_unit_bytes = 0;
  if (n_bytes >= 4) memcpy(&n_unit_bytes, data, 4);
  if (n_bytes < 4 || n_unit_bytes % 4 != 0 || n_unit_bytes > n_bytes - 4) {
    return fail(EMEL_OUT_OF_BOUNDS, "the character map of %llu bytes is too short for the %u bytes it announces",
                static_cast<unsigned long long>(n_bytes), n_unit_bytes);
  }
  unigram->charsmap_data = allocate_array<uint8_t>(n_bytes);
  if (unigram->charsmap_data == nullptr) return fail(EMEL_OUT_OF_MEMORY, "no memory for the character map");
  memcpy(unigram->charsmap_data, data, n_bytes);
  unigram->charsmap = {unigram->charsmap_data + 4, n_unit_bytes / 4, unigram->charsmap_data + 4 + n_unit_bytes,
                       static_cast<size_t>(n_bytes - 4 - n_unit_bytes)};
  return EMEL_OK;
}

}  // namespace
}  // namespace emel::text

using namespace emel;
using namespace emel::text;

emel_status emel_unigram_create(const emel_unigram_desc* desc, emel_unigram** out) {
  if (!desc || !out || !desc->trie || !desc->scores || (desc->charsmap_bytes > 0 && !desc->charsmap)) {
    return fail(EMEL_INVALID_ARGUMENT, "emel_unigram_create: a null argument");
  }
  *out = nullptr;
  const uint32_t n_tokens = desc->trie->vocab->n_tokens;
  if (desc->unknown >= 0 && static_cast<uint32_t>(desc->unknown) >= n_tokens) {
    return fail(EMEL_OUT_OF_BOUNDS, "the unknown token %d is outside the vocabulary", desc->unknown);
  }
  emel_unigram* unigram = allocate_array<emel_unigram>(1);
  if (unigram == nullptr) return fail(EMEL_OUT_OF_MEMORY, "no memory for the scores");
  unigram->trie = desc->trie;
  unigram->flags = desc->flags;
  unigram->unknown = desc->unknown >= 0 ? static_cast<uint32_t>(desc->unknown) : kNoToken;
  unigram->scores = allocate_array<double>(n_tokens);
  emel_status status = EMEL_OK;
  if (unigram->scores == nullptr) status = fail(EMEL_OUT_OF_MEMORY, "no memory for the scores of %u tokens", n_tokens);
  if (status == EMEL_OK) status = set_charsmap(unigram, desc->charsmap, desc->charsmap_bytes);
  if (status != EMEL_OK) {
    emel_unigram_destroy(unigram);
    return status;
  }
  set_scores(unigram, desc->scores);
  *out = unigram;
  return EMEL_OK;
}

void emel_unigram_destroy(emel_unigram* unigram) {
  if (unigram == nullptr) return;
  release(unigram->scores);
  release(unigram->charsmap_data);
  release(unigram);
}

emel_status emel_unigram_encode(const emel_unigram* unigram, const uint8_t* text, uint64_t n_bytes, int32_t* ids,
                                uint64_t capacity, uint64_t* n_ids) {
  if (!unigram || !n_ids || (n_bytes > 0 && !text) || (capacity > 0 && !ids)) {
    return fail(EMEL_INVALID_ARGUMENT, "emel_unigram_encode: a null argument");
  }
  *n_ids = 0;
  Buffer normalized;
  normalize(unigram, {text, static_cast<size_t>(n_bytes)}, &normalized);
  emel_status status = EMEL_OK;
  if (normalized.size >= INT32_MAX) {
    status = fail(EMEL_UNSUPPORTED, "a text that normalizing makes longer than 2147483646 bytes");
  }
  const Slice slice{normalized.data, normalized.size};
  Best* best = status == EMEL_OK && !normalized.is_full ? allocate_array<Best>(slice.size + 1) : nullptr;
  if (status == EMEL_OK && best == nullptr) {
    status = fail(EMEL_OUT_OF_MEMORY, "no memory to tokenize %llu bytes", static_cast<unsigned long long>(n_bytes));
  }
  if (status == EMEL_OK) {
    *n_ids = slice.size;  // room enough: where it is too small, nothing is written
    if (slice.size <= capacity) {
      find_best(unigram, slice, best);
      *n_ids = write_best(unigram, slice, best, ids);
    }
  }
  release(normalized.data);
  release(best);
  return status;
}
