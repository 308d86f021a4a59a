// Building the table of merges. The tables are larger than the caches, so lookups go in batches: what all of them will
// touch is asked for before any of it is needed.
#include <string.h>

#include <algorithm>

#include "core/allocation.h"
#include "core/error.h"
#include "text/bpe.h"

namespace emel::text {
namespace {

constexpr uint32_t kBatch = 64;

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
uint32_t find_joined(const emel_vocab* vocab, Slice left, Slice right, uint32_t guess, uint8_t* scratch) {
  const size_t size = left.size + right.size;
  if (size > vocab->longest) return kNoToken;
  memcpy(scratch, left.data, left.size);
  memcpy(scratch + left.size, right.data, right.size);
  const Slice joined{scratch, size};
  if (guess < vocab->n_tokens && equals(token_text(vocab, guess), joined)) return guess;
  return find_token(vocab, joined);
}

// One of the two parts of a merge on its way to a token, a cache line further with each step.
struct Part {
  Slice text;
  uint64_t code;
  uint32_t likely;  // a token to compare with, 0 if there is none

  void ask_for_slot(const emel_vocab* vocab) {
    code = hash(text);
    __builtin_prefetch(&vocab->strings[code & vocab->strings_mask]);
  }
  void ask_for_offsets(const emel_vocab* vocab) {
    const uint32_t id_plus_1 = vocab->strings[code & vocab->strings_mask].id_plus_1;
    likely = id_plus_1 == 0 ? 0 : id_plus_1 - 1;
    __builtin_prefetch(&vocab->offsets[likely]);
  }
  void ask_for_text(const emel_vocab* vocab) const { __builtin_prefetch(vocab->blob + vocab->offsets[likely]); }
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
    const uint32_t merged = find_joined(bpe->vocab, left.text, right.text, last_merged + 1, scratch);
    if (merged == kNoToken) return;
    last_merged = merged;
    const uint32_t left_id = find_hashed(bpe->vocab, left.text, left.code);
    const uint32_t right_id = find_hashed(bpe->vocab, right.text, right.code);
    const bool is_known = left_id != kNoToken && right_id != kNoToken;
    if (is_known && is_ordinary(bpe->vocab, merged)) insert_merge(bpe, left_id, right_id, rank, merged);
  }

  emel_status read_batch(uint32_t begin, uint32_t n) {
    Part parts[2 * kBatch];
    for (uint32_t i = 0; i < n; ++i) {
      if (emel_status status = read_parts(begin + i, &parts[2 * i], &parts[2 * i + 1])) return status;
    }
    for (uint32_t i = 0; i < 2 * n; ++i) parts[i].ask_for_slot(bpe->vocab);
    for (uint32_t i = 0; i < 2 * n; ++i) parts[i].ask_for_offsets(bpe->vocab);
    for (uint32_t i = 0; i < 2 * n; ++i) parts[i].ask_for_text(bpe->vocab);
    for (uint32_t i = 0; i < n; ++i) insert(begin + i, parts[2 * i], parts[2 * i + 1]);
    return EMEL_OK;
  }
};

}  // namespace

emel_status read_merges(emel_bpe* bpe, const emel_bpe_desc& desc) {
  uint8_t* scratch = allocate_array<uint8_t>(bpe->vocab->longest);
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

}  // namespace emel::text
