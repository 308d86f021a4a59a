// Building the tables of a vocabulary. They are larger than the caches, so lookups go in batches: what all of them will
// touch is asked for before any of it is needed.
#include <string.h>

#include <algorithm>

#include "core/allocation.h"
#include "core/error.h"
#include "text/bpe.h"
#include "text/byte_level.h"

namespace emel::text {
namespace {

constexpr uint32_t kBatch = 64;

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

void insert_token(emel_bpe* bpe, uint32_t id, uint64_t code) {
  const Slice text = token_text(bpe, id);
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

void insert_tokens(emel_bpe* bpe) {
  uint64_t codes[kBatch];
  for (uint32_t begin = 0; begin < bpe->n_tokens; begin += kBatch) {
    const uint32_t n = std::min(kBatch, bpe->n_tokens - begin);
    for (uint32_t i = 0; i < n; ++i) {
      codes[i] = hash(token_text(bpe, begin + i));
      __builtin_prefetch(&bpe->strings[codes[i] & bpe->strings_mask], 1);
    }
    for (uint32_t i = 0; i < n; ++i) insert_token(bpe, begin + i, codes[i]);
  }
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

uint32_t find_hashed(const emel_bpe* bpe, Slice text, uint64_t code) {
  const uint32_t tag = static_cast<uint32_t>(code >> 32);
  for (uint64_t slot = code;; ++slot) {
    const StringSlot* entry = &bpe->strings[slot & bpe->strings_mask];
    if (entry->id_plus_1 == 0) return kNoToken;
    if (entry->tag == tag && equals(token_text(bpe, entry->id_plus_1 - 1), text)) return entry->id_plus_1 - 1;
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

// One of the two parts of a merge on its way to a token, a cache line further with each step.
struct Part {
  Slice text;
  uint64_t code;
  uint32_t likely;  // a token to compare with, 0 if there is none

  void ask_for_slot(const emel_bpe* bpe) {
    code = hash(text);
    __builtin_prefetch(&bpe->strings[code & bpe->strings_mask]);
  }
  void ask_for_offsets(const emel_bpe* bpe) {
    const uint32_t id_plus_1 = bpe->strings[code & bpe->strings_mask].id_plus_1;
    likely = id_plus_1 == 0 ? 0 : id_plus_1 - 1;
    __builtin_prefetch(&bpe->offsets[likely]);
  }
  void ask_for_text(const emel_bpe* bpe) const { __builtin_prefetch(bpe->blob + bpe->offsets[likely]); }
};

struct MergeReader {
  emel_bpe* bpe;
  StringReader strings;
  uint64_t n_merges;
  uint8_t* scratch;  // (longest,)
  uint32_t last_merged;

  emel_status read_parts(uint32_t rank, Part* left, Part* right) {
    Slice text;
    if (!strings.read(&text)) {
      return fail(EMEL_OUT_OF_BOUNDS, "merge %u of %llu reaches past the end of the merge array", rank,
                  static_cast<unsigned long long>(n_merges));
    }
    // "left right": the first character belongs to the left part even when it is the separator itself.
    const void* space = text.size > 2 ? memchr(text.data + 1, ' ', text.size - 2) : nullptr;
    if (space == nullptr) {
      return fail(EMEL_INVALID_ARGUMENT, "merge %u is not two parts with a space between them", rank);
    }
    const size_t n_left = static_cast<size_t>(static_cast<const uint8_t*>(space) - text.data);
    left->text = {text.data, n_left};
    right->text = {text.data + n_left + 1, text.size - n_left - 1};
    return EMEL_OK;
  }

  void insert(uint32_t rank, const Part& left, const Part& right) {
    const uint32_t merged = find_joined(bpe, left.text, right.text, last_merged + 1, scratch);
    if (merged == kNoToken) return;
    last_merged = merged;
    const uint32_t left_id = find_hashed(bpe, left.text, left.code);
    const uint32_t right_id = find_hashed(bpe, right.text, right.code);
    const bool is_control = bpe->types[merged] == EMEL_TOKEN_CONTROL || bpe->types[merged] == EMEL_TOKEN_UNKNOWN;
    if (left_id != kNoToken && right_id != kNoToken && !is_control) insert_merge(bpe, left_id, right_id, rank, merged);
  }

  emel_status read_batch(uint32_t begin, uint32_t n) {
    Part parts[2 * kBatch];
    for (uint32_t i = 0; i < n; ++i) {
      if (emel_status status = read_parts(begin + i, &parts[2 * i], &parts[2 * i + 1])) return status;
    }
    for (uint32_t i = 0; i < 2 * n; ++i) parts[i].ask_for_slot(bpe);
    for (uint32_t i = 0; i < 2 * n; ++i) parts[i].ask_for_offsets(bpe);
    for (uint32_t i = 0; i < 2 * n; ++i) parts[i].ask_for_text(bpe);
    for (uint32_t i = 0; i < n; ++i) insert(begin + i, parts[2 * i], parts[2 * i + 1]);
    return EMEL_OK;
  }
};

}  // namespace

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
  insert_tokens(bpe);
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint8_t text[2];
    const size_t size = encode_byte(static_cast<uint8_t>(byte), text);
    const uint32_t id = find_token(bpe, {text, size});
    bpe->byte_token[byte] = id != kNoToken && bpe->types[id] != EMEL_TOKEN_CONTROL ? id : kNoToken;
  }
  return EMEL_OK;
}

emel_status read_merges(emel_bpe* bpe, const emel_bpe_desc& desc) {
  uint8_t* scratch = allocate_array<uint8_t>(bpe->longest);
  if (scratch == nullptr) return fail(EMEL_OUT_OF_MEMORY, "no memory for the merges");
  MergeReader reader{bpe, {desc.merges, desc.merges_bytes}, desc.n_merges, scratch, 0};
  emel_status status = EMEL_OK;
  const uint32_t n_merges = static_cast<uint32_t>(desc.n_merges);
  for (uint32_t begin = 0; begin < n_merges && status == EMEL_OK; begin += kBatch) {
    status = reader.read_batch(begin, std::min(kBatch, n_merges - begin));
  }
  release(scratch);
  return status;
}

uint32_t find_token(const emel_bpe* bpe, Slice text) { return find_hashed(bpe, text, hash(text)); }

}  // namespace emel::text
