// Vocabularies: the C ABI, and building their table. How token texts become bytes is in spelling.cc.
#include "text/vocab.h"

#include <algorithm>

#include "core/allocation.h"
#include "core/error.h"
#include "text/byte_level.h"

namespace emel::text {
namespace {

// The table is larger than the caches, so texts go in batches: what all of them will touch is asked for first.
constexpr uint32_t kBatch = 64;

emel_status check_desc(const emel_vocab_desc& desc) {
  if (desc.n_tokens == 0 || desc.n_tokens > INT32_MAX - 1) {
    return fail(EMEL_INVALID_ARGUMENT, "a vocabulary of %llu tokens; allowed are 1 to 2147483646",
                static_cast<unsigned long long>(desc.n_tokens));
  }
  if (desc.n_tokens > desc.tokens_bytes / 8) {
    return fail(EMEL_OUT_OF_BOUNDS, "%llu tokens do not fit the %llu bytes of their array",
                static_cast<unsigned long long>(desc.n_tokens), static_cast<unsigned long long>(desc.tokens_bytes));
  }
  if (desc.tokens_bytes > UINT32_MAX) return fail(EMEL_UNSUPPORTED, "the token array must be smaller than 4 GiB");
  if (desc.spelling >= EMEL_SPELLING_COUNT) {
    return fail(EMEL_INVALID_ARGUMENT, "unknown spelling %u of token texts", desc.spelling);
  }
  return EMEL_OK;
}

void insert_token(emel_vocab* vocab, uint32_t id, uint64_t code) {
  const Slice text = token_text(vocab, id);
  const uint32_t tag = static_cast<uint32_t>(code >> 32);
  for (uint64_t slot = code;; ++slot) {
    StringSlot* entry = &vocab->strings[slot & vocab->strings_mask];
    if (entry->id_plus_1 == 0) {
      *entry = {tag, id + 1};
      return;
    }
    if (entry->tag == tag && equals(token_text(vocab, entry->id_plus_1 - 1), text)) return;  // the first of equals wins
  }
}

void insert_tokens(emel_vocab* vocab) {
  uint64_t codes[kBatch];
  for (uint32_t begin = 0; begin < vocab->n_tokens; begin += kBatch) {
    const uint32_t n = std::min(kBatch, vocab->n_tokens - begin);
    for (uint32_t i = 0; i < n; ++i) {
      codes[i] = hash(token_text(vocab, begin + i));
      __builtin_prefetch(&vocab->strings[codes[i] & vocab->strings_mask], 1);
    }
    for (uint32_t i = 0; i < n; ++i) insert_token(vocab, begin + i, codes[i]);
  }
}

// The token of one byte: its character in byte-level vocabularies; in the others "<0xE6>", or else the byte itself.
uint32_t find_byte_token(const emel_vocab* vocab, uint8_t byte) {
  uint8_t text[6] = {'<', '0', 'x', 0, 0, '>'};
  if (vocab->spelling == EMEL_SPELLING_BYTE_LEVEL) {
    const uint32_t id = find_token(vocab, {text, encode_byte(byte, text)});
    return id != kNoToken && vocab->types[id] != EMEL_TOKEN_CONTROL ? id : kNoToken;
  }
  const char* digits = "0123456789ABCDEF";
  text[3] = static_cast<uint8_t>(digits[byte >> 4]);
  text[4] = static_cast<uint8_t>(digits[byte & 15]);
  uint32_t id = find_token(vocab, {text, sizeof text});
  if (id != kNoToken && vocab->types[id] == EMEL_TOKEN_BYTE) return id;
  id = find_token(vocab, {&byte, 1});
  return id != kNoToken && is_ordinary(vocab, id) ? id : kNoToken;
}

emel_status read_tokens(emel_vocab* vocab, const emel_vocab_desc& desc) {
  StringReader reader{desc.tokens, desc.tokens_bytes};
  uint32_t written = 0;
  for (uint32_t id = 0; id < vocab->n_tokens; ++id) {
    Slice text;
    if (!reader.read(&text)) {
      return fail(EMEL_OUT_OF_BOUNDS, "token %u of %u reaches past the end of the token array", id, vocab->n_tokens);
    }
    memcpy(vocab->blob + written, text.data, text.size);
    vocab->offsets[id] = written;
    written += static_cast<uint32_t>(text.size);
    vocab->longest = std::max(vocab->longest, text.size);
    const int32_t type = desc.types != nullptr ? desc.types[id] : EMEL_TOKEN_NORMAL;
    vocab->types[id] = type >= EMEL_TOKEN_NORMAL && type <= EMEL_TOKEN_BYTE ? static_cast<uint8_t>(type) : 0;
  }
  vocab->offsets[vocab->n_tokens] = written;
  insert_tokens(vocab);
  for (uint32_t byte = 0; byte < 256; ++byte) {
    vocab->byte_token[byte] = find_byte_token(vocab, static_cast<uint8_t>(byte));
  }
  return EMEL_OK;
}

}  // namespace
}  // namespace emel::text

using namespace emel;
using namespace emel::text;

emel_status emel_vocab_create(const emel_vocab_desc* desc, emel_vocab** out) {
  if (desc == nullptr || out == nullptr) return fail(EMEL_INVALID_ARGUMENT, "emel_vocab_create: a null argument");
  *out = nullptr;
  if (emel_status status = check_desc(*desc)) return status;
  emel_vocab* vocab = allocate_array<emel_vocab>(1);
  if (vocab == nullptr) return fail(EMEL_OUT_OF_MEMORY, "no memory for the vocabulary");
  vocab->n_tokens = static_cast<uint32_t>(desc->n_tokens);
  vocab->spelling = desc->spelling;
  const uint32_t n_strings = table_size(desc->n_tokens);
  vocab->strings_mask = n_strings - 1;
  vocab->blob = allocate_array<uint8_t>(desc->tokens_bytes);
  vocab->offsets = allocate_array<uint32_t>(desc->n_tokens + 1);
  vocab->types = allocate_array<uint8_t>(desc->n_tokens);
  vocab->strings = allocate_array<StringSlot>(n_strings);
  emel_status status = EMEL_OK;
  if (!vocab->blob || !vocab->offsets || !vocab->types || !vocab->strings) {
    status = fail(EMEL_OUT_OF_MEMORY, "no memory for a vocabulary of %u tokens", vocab->n_tokens);
  }
  if (status == EMEL_OK) status = read_tokens(vocab, *desc);
  if (status != EMEL_OK) {
    emel_vocab_destroy(vocab);
    return status;
  }
  *out = vocab;
  return EMEL_OK;
}

void emel_vocab_destroy(emel_vocab* vocab) {
  if (vocab == nullptr) return;
  release(vocab->blob);
  release(vocab->offsets);
  release(vocab->types);
  release(vocab->strings);
  release(vocab);
}

emel_status emel_vocab_mark_control(emel_vocab* vocab, const int32_t* ids, uint64_t n_ids) {
  if (vocab == nullptr || (n_ids > 0 && ids == nullptr)) {
    return fail(EMEL_INVALID_ARGUMENT, "emel_vocab_mark_control: a null argument");
  }
  for (uint64_t i = 0; i < n_ids; ++i) {
    if (ids[i] < 0 || static_cast<uint32_t>(ids[i]) >= vocab->n_tokens) {
      return fail(EMEL_OUT_OF_BOUNDS, "token id %d is outside the vocabulary: allowed are 0 to %u", ids[i],
                  vocab->n_tokens - 1);
    }
    vocab->types[ids[i]] = EMEL_TOKEN_CONTROL;
  }
  for (uint32_t& id : vocab->byte_token) {
    if (id != kNoToken && vocab->types[id] == EMEL_TOKEN_CONTROL) id = kNoToken;
  }
  return EMEL_OK;
}

emel_status emel_vocab_decode(const emel_vocab* vocab, const int32_t* ids, uint64_t n_ids, uint8_t* out,
                              uint64_t capacity, uint64_t* n_bytes) {
  if (vocab == nullptr || n_bytes == nullptr || (n_ids > 0 && ids == nullptr)) {
    return fail(EMEL_INVALID_ARGUMENT, "emel_vocab_decode: a null argument");
  }
  uint64_t needed = 0;
  for (uint64_t i = 0; i < n_ids; ++i) {
    if (ids[i] < 0 || static_cast<uint32_t>(ids[i]) >= vocab->n_tokens) {
      return fail(EMEL_OUT_OF_BOUNDS, "token id %d is outside the vocabulary: allowed are 0 to %u", ids[i],
                  vocab->n_tokens - 1);
    }
    needed += token_text(vocab, static_cast<uint32_t>(ids[i])).size;
  }
  *n_bytes = needed;  // an upper bound: no spelling is shorter than what it stands for
  if (out == nullptr) return EMEL_OK;
  if (capacity < needed) return fail(EMEL_OUT_OF_BOUNDS, "emel_vocab_decode: the buffer is too small");
  uint64_t written = 0;
  for (uint64_t i = 0; i < n_ids; ++i) written += write_token(vocab, static_cast<uint32_t>(ids[i]), out + written);
  *n_bytes = written;
  return EMEL_OK;
}

int32_t emel_vocab_find(const emel_vocab* vocab, const uint8_t* text, uint64_t n_bytes) {
  if (vocab == nullptr || (n_bytes > 0 && text == nullptr)) return -1;
  const uint32_t id = find_token(vocab, {text, static_cast<size_t>(n_bytes)});
  return id == kNoToken ? -1 : static_cast<int32_t>(id);
}

emel_status emel_vocab_ids_of_types(const emel_vocab* vocab, uint32_t type_mask, int32_t* ids, uint64_t capacity,
                                    uint64_t* n_ids) {
  if (vocab == nullptr || n_ids == nullptr || (capacity > 0 && ids == nullptr)) {
    return fail(EMEL_INVALID_ARGUMENT, "emel_vocab_ids_of_types: a null argument");
  }
  uint64_t n = 0;
  for (uint32_t id = 0; id < vocab->n_tokens; ++id) {
    if ((type_mask >> vocab->types[id] & 1) == 0) continue;
    if (n < capacity) ids[n] = static_cast<int32_t>(id);
    ++n;
  }
  *n_ids = n;
  return EMEL_OK;
}
