// Byte-level BPE: the C ABI. The tables are built in bpe_build.cc, the merge loop is in bpe_merge.cc.
#include "text/bpe.h"

#include <string.h>

#include "core/allocation.h"
#include "core/error.h"
#include "text/byte_level.h"

namespace emel::text {
namespace {

// Slots of a table for n entries: a power of two, at least one and a half times n.
uint32_t table_size(uint64_t n) {
  uint32_t size = 16;
  while (size < n + n / 2) size *= 2;
  return size;
}

// A control token's text is never written in the byte code; nor are the others that are matched in raw text.
bool is_raw(uint8_t type) {
  return type == EMEL_TOKEN_UNKNOWN || type == EMEL_TOKEN_CONTROL || type == EMEL_TOKEN_USER_DEFINED;
}

emel_status check_desc(const emel_bpe_desc* desc) {
  if (desc->n_tokens == 0 || desc->n_tokens > INT32_MAX - 1) {
    return fail(EMEL_INVALID_ARGUMENT, "a vocabulary of %llu tokens; allowed are 1 to 2147483646",
                static_cast<unsigned long long>(desc->n_tokens));
  }
  if (desc->n_tokens > desc->tokens_bytes / 8 || desc->n_merges > desc->merges_bytes / 8) {
    return fail(EMEL_OUT_OF_BOUNDS, "%llu tokens and %llu merges do not fit the %llu and %llu bytes of their arrays",
                static_cast<unsigned long long>(desc->n_tokens), static_cast<unsigned long long>(desc->n_merges),
                static_cast<unsigned long long>(desc->tokens_bytes),
                static_cast<unsigned long long>(desc->merges_bytes));
  }
  if (desc->tokens_bytes > UINT32_MAX || desc->merges_bytes > UINT32_MAX) {
    return fail(EMEL_UNSUPPORTED, "the token and merge arrays must each be smaller than 4 GiB");
  }
  return EMEL_OK;
}

// Bytes of a token to out (room for its text), its number returned.
size_t write_token(const emel_bpe* bpe, uint32_t id, uint8_t* out) {
  const Slice text = token_text(bpe, id);
  size_t size = 0;
  if (!is_raw(bpe->types[id]) && decode_characters(text.data, text.size, out, &size)) return size;
  memcpy(out, text.data, text.size);
  return text.size;
}

}  // namespace
}  // namespace emel::text

using namespace emel;
using namespace emel::text;

emel_status emel_bpe_create(const emel_bpe_desc* desc, emel_bpe** out) {
  if (desc == nullptr || out == nullptr) return fail(EMEL_INVALID_ARGUMENT, "emel_bpe_create: a null argument");
  *out = nullptr;
  if (emel_status status = check_desc(desc)) return status;
  emel_bpe* bpe = allocate_array<emel_bpe>(1);
  if (bpe == nullptr) return fail(EMEL_OUT_OF_MEMORY, "no memory for the vocabulary");
  bpe->n_tokens = static_cast<uint32_t>(desc->n_tokens);
  bpe->ignore_merges = desc->ignore_merges != 0;
  const uint32_t n_strings = table_size(desc->n_tokens);
  const uint32_t n_merges = table_size(desc->n_merges);
  bpe->strings_mask = n_strings - 1;
  bpe->merges_mask = n_merges - 1;
  bpe->blob = allocate_array<uint8_t>(desc->tokens_bytes);
  bpe->offsets = allocate_array<uint32_t>(desc->n_tokens + 1);
  bpe->types = allocate_array<uint8_t>(desc->n_tokens);
  bpe->strings = allocate_array<StringSlot>(n_strings);
  bpe->merges = allocate_array<MergeSlot>(n_merges);
  emel_status status = EMEL_OK;
  if (!bpe->blob || !bpe->offsets || !bpe->types || !bpe->strings || !bpe->merges) {
    status = fail(EMEL_OUT_OF_MEMORY, "no memory for a vocabulary of %u tokens", bpe->n_tokens);
  }
  if (status == EMEL_OK) status = read_tokens(bpe, *desc);
  if (status == EMEL_OK) status = read_merges(bpe, *desc);
  if (status != EMEL_OK) {
    emel_bpe_destroy(bpe);
    return status;
  }
  *out = bpe;
  return EMEL_OK;
}

void emel_bpe_destroy(emel_bpe* bpe) {
  if (bpe == nullptr) return;
  release(bpe->blob);
  release(bpe->offsets);
  release(bpe->types);
  release(bpe->strings);
  release(bpe->merges);
  release(bpe);
}

emel_status emel_bpe_encode(const emel_bpe* bpe, const uint8_t* text, uint64_t n_bytes, const uint64_t* word_ends,
                            uint64_t n_words, int32_t* ids, uint64_t capacity, uint64_t* n_ids) {
  if (!bpe || !n_ids || (n_bytes > 0 && (!text || !ids)) || (n_words > 0 && !word_ends)) {
    return fail(EMEL_INVALID_ARGUMENT, "emel_bpe_encode: a null argument");
  }
  *n_ids = 0;
  if (n_bytes > INT32_MAX) {
    return fail(EMEL_UNSUPPORTED, "a text of %llu bytes; at most 2147483647",
                static_cast<unsigned long long>(n_bytes));
  }
  if (capacity < n_bytes) return fail(EMEL_OUT_OF_BOUNDS, "emel_bpe_encode: room for fewer ids than bytes");
  uint64_t begin = 0;
  uint64_t written = 0;
  for (uint64_t i = 0; i < n_words; ++i) {
    const uint64_t end = word_ends[i];
    if (end < begin || end > n_bytes) return fail(EMEL_OUT_OF_BOUNDS, "word ends must ascend and stay in the text");
    if (end == begin) continue;
    size_t n = 0;
    const Slice word{text + begin, static_cast<size_t>(end - begin)};
    if (emel_status status = encode_word(bpe, word, ids + written, &n)) return status;
    written += n;
    begin = end;
  }
  if (begin != n_bytes) return fail(EMEL_INVALID_ARGUMENT, "the words end before the text does");
  *n_ids = written;
  return EMEL_OK;
}

emel_status emel_bpe_decode(const emel_bpe* bpe, const int32_t* ids, uint64_t n_ids, uint8_t* out, uint64_t capacity,
                            uint64_t* n_bytes) {
  if (bpe == nullptr || n_bytes == nullptr || (n_ids > 0 && ids == nullptr)) {
    return fail(EMEL_INVALID_ARGUMENT, "emel_bpe_decode: a null argument");
  }
  uint64_t needed = 0;
  for (uint64_t i = 0; i < n_ids; ++i) {
    if (ids[i] < 0 || static_cast<uint32_t>(ids[i]) >= bpe->n_tokens) {
      return fail(EMEL_OUT_OF_BOUNDS, "token id %d is outside the vocabulary: allowed are 0 to %u", ids[i],
                  bpe->n_tokens - 1);
    }
    needed += token_text(bpe, static_cast<uint32_t>(ids[i])).size;
  }
  *n_bytes = needed;  // an upper bound: the byte code never shortens
  if (out == nullptr) return EMEL_OK;
  if (capacity < needed) return fail(EMEL_OUT_OF_BOUNDS, "emel_bpe_decode: the buffer is too small");
  uint64_t written = 0;
  for (uint64_t i = 0; i < n_ids; ++i) written += write_token(bpe, static_cast<uint32_t>(ids[i]), out + written);
  *n_bytes = written;
  return EMEL_OK;
}

int32_t emel_bpe_find(const emel_bpe* bpe, const uint8_t* text, uint64_t n_bytes) {
  if (bpe == nullptr || (n_bytes > 0 && text == nullptr)) return -1;
  const uint32_t id = find_token(bpe, {text, static_cast<size_t>(n_bytes)});
  return id == kNoToken ? -1 : static_cast<int32_t>(id);
}

emel_status emel_bpe_ids_of_types(const emel_bpe* bpe, uint32_t type_mask, int32_t* ids, uint64_t capacity,
                                  uint64_t* n_ids) {
  if (bpe == nullptr || n_ids == nullptr || (capacity > 0 && ids == nullptr)) {
    return fail(EMEL_INVALID_ARGUMENT, "emel_bpe_ids_of_types: a null argument");
  }
  uint64_t n = 0;
  for (uint32_t id = 0; id < bpe->n_tokens; ++id) {
    if ((type_mask >> bpe->types[id] & 1) == 0) continue;
    if (n < capacity) ids[n] = static_cast<int32_t>(id);
    ++n;
  }
  *n_ids = n;
  return EMEL_OK;
}
