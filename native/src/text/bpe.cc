// Byte-level BPE: building the tables, and the C ABI over them. The merge loop is in bpe_merge.cc.
#include "text/bpe.h"

#include <string.h>

#include "core/allocation.h"
#include "core/error.h"
#include "text/byte_level.h"

namespace emel::text {
namespace {

uint64_t hash(Slice text) {
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

bool equals(Slice a, Slice b) { return a.size == b.size && memcmp(a.data, b.data, a.size) == 0; }

// Slots of a table for n entries: a power of two, at least one and a half times n.
uint32_t table_size(uint64_t n) {
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

// A control token's text is never written in the byte code; nor are the others that are matched in raw text.
bool is_raw(uint8_t type) {
  return type == EMEL_TOKEN_UNKNOWN || type == EMEL_TOKEN_CONTROL || type == EMEL_TOKEN_USER_DEFINED;
}

void insert_token(emel_bpe* bpe, uint32_t id) {
  const Slice text = token_text(bpe, id);
  const uint64_t code = hash(text);
  const uint32_t tag = static_cast<uint32_t>(code >> 32);
  for (uint64_t slot = code;; ++slot) {
    StringSlot* entry = &bpe->strings[slot & bpe->strings_mask];
    if (entry->id_plus_1 == 0) {
      *entry = {tag, id + 1};
      return;
    }
    if (entry->tag == tag && equals(token_text(bpe, entry->id_plus_1 - 1), text)) return;  // the first of equals wins
  }
}

emel_status read_tokens(emel_bpe* bpe, const emel_bpe_desc& desc) {
  StringReader reader{desc.tokens, desc.tokens_bytes};
  uint32_t written = 0;
  for (uint32_t id = 0; id < bpe->n_tokens; ++id) {
    Slice text;
    if (!reader.read(&text)) {
      return fail(EMEL_OUT_OF_BOUNDS, "token %u of %u reaches past the end of the token array", id, bpe->n_tokens);
    }
    memcpy(bpe->blob + written, text.data, text.size);
    bpe->offsets[id] = written;
    written += static_cast<uint32_t>(text.size);
    if (text.size > bpe->longest) bpe->longest = text.size;
    const int32_t type = desc.types != nullptr ? desc.types[id] : EMEL_TOKEN_NORMAL;
    bpe->types[id] = type >= EMEL_TOKEN_NORMAL && type <= EMEL_TOKEN_BYTE ? static_cast<uint8_t>(type) : 0;
  }
  bpe->offsets[bpe->n_tokens] = written;
  for (uint32_t id = 0; id < bpe->n_tokens; ++id) insert_token(bpe, id);
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint8_t text[2];
    const size_t size = encode_byte(static_cast<uint8_t>(byte), text);
    const uint32_t id = find_token(bpe, {text, size});
    bpe->byte_token[byte] = id != kNoToken && bpe->types[id] != EMEL_TOKEN_CONTROL ? id : kNoToken;
  }
  return EMEL_OK;
}

void insert_merge(emel_bpe* bpe, uint32_t left, uint32_t right, uint32_t rank, uint32_t merged) {
  for (uint64_t slot = mix(static_cast<uint64_t>(left) << 32 | right);; ++slot) {
    MergeSlot* entry = &bpe->merges[slot & bpe->merges_mask];
    if (entry->left_plus_1 == 0) {
      *entry = {left + 1, right, rank, merged};
      return;
    }
    if (entry->left_plus_1 == left + 1 && entry->right == right) return;
  }
}

// The token of both parts joined. Merges are mostly in the order of the tokens they make: try the neighbour first.
uint32_t find_joined(const emel_bpe* bpe, Slice left, Slice right, uint32_t guess, uint8_t* scratch) {
  const size_t size = left.size + right.size;
  if (size > bpe->longest) return kNoToken;
  memcpy(scratch, left.data, left.size);
  memcpy(scratch + left.size, right.data, right.size);
  const Slice joined{scratch, size};
  if (guess < bpe->n_tokens && equals(token_text(bpe, guess), joined)) return guess;
  return find_token(bpe, joined);
}

emel_status read_merges(emel_bpe* bpe, const emel_bpe_desc& desc) {
  uint8_t* scratch = allocate_array<uint8_t>(bpe->longest);
  if (scratch == nullptr) return fail(EMEL_OUT_OF_MEMORY, "no memory for the merges");
  StringReader reader{desc.merges, desc.merges_bytes};
  emel_status status = EMEL_OK;
  uint32_t last = 0;
  for (uint32_t rank = 0; rank < desc.n_merges; ++rank) {
    Slice text;
    if (!reader.read(&text)) {
      status = fail(EMEL_OUT_OF_BOUNDS, "merge %u of %llu reaches past the end of the merge array", rank,
                    static_cast<unsigned long long>(desc.n_merges));
      break;
    }
    // "left right": the first character belongs to the left part even when it is the separator itself.
    const void* space = text.size > 2 ? memchr(text.data + 1, ' ', text.size - 1) : nullptr;
    if (space == nullptr) {
      status = fail(EMEL_INVALID_ARGUMENT, "merge %u is not two parts with a space between them", rank);
      break;
    }
    const size_t n_left = static_cast<size_t>(static_cast<const uint8_t*>(space) - text.data);
    const Slice left{text.data, n_left};
    const Slice right{text.data + n_left + 1, text.size - n_left - 1};
    const uint32_t merged = find_joined(bpe, left, right, last + 1, scratch);
    if (merged == kNoToken) continue;
    last = merged;
    const uint32_t left_id = find_token(bpe, left);
    const uint32_t right_id = find_token(bpe, right);
    const bool is_control = bpe->types[merged] == EMEL_TOKEN_CONTROL || bpe->types[merged] == EMEL_TOKEN_UNKNOWN;
    if (left_id != kNoToken && right_id != kNoToken && !is_control) insert_merge(bpe, left_id, right_id, rank, merged);
  }
  release(scratch);
  return status;
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

uint32_t find_token(const emel_bpe* bpe, Slice text) {
  const uint64_t code = hash(text);
  const uint32_t tag = static_cast<uint32_t>(code >> 32);
  for (uint64_t slot = code;; ++slot) {
    const StringSlot* entry = &bpe->strings[slot & bpe->strings_mask];
    if (entry->id_plus_1 == 0) return kNoToken;
    if (entry->tag == tag && equals(token_text(bpe, entry->id_plus_1 - 1), text)) return entry->id_plus_1 - 1;
  }
}

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
