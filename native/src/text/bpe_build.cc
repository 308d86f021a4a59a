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

// A text on its way to its token, a cache line further with each step.
struct Lookup {
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

// A merge on its way into the table.
struct Merge {
  Lookup left;
  Lookup right;
  uint32_t merged;
  uint32_t left_id;
  uint32_t right_id;
  uint64_t code;

  bool can_happen(const emel_vocab* vocab) const {
    return left_id != kNoToken && right_id != kNoToken && merged != kNoToken && is_ordinary(vocab, merged);
  }
};

// Whether a token's text is both parts joined.
bool is_joined(const emel_vocab* vocab, uint32_t id, const Merge& merge) {
  if (id >= vocab->n_tokens) return false;
  const Slice whole = token_text(vocab, id);
  const Slice left = merge.left.text;
  const Slice right = merge.right.text;
  return whole.size == left.size + right.size && memcmp(whole.data, left.data, left.size) == 0 &&
         memcmp(whole.data + left.size, right.data, right.size) == 0;
}

struct MergeReader {
  emel_bpe* bpe;
  StringReader strings;
  uint64_t n_merges;
  uint8_t* scratch;  // (longest,)
  uint32_t last_merged;

  emel_status read_parts(uint32_t rank, Merge* merge) {
    Slice text;
    if (!strings.read(&text)) {
      return fail(EMEL_OUT_OF_BOUNDS, "merge %u of %llu reaches past the end of the merge array", rank,
                  static_cast<unsigned long long>(n_merges));
    }
    // The first character belongs to the left part even when it is the separator itself.
    const void* space = text.size > 2 ? memchr(text.data + 1, ' ', text.size - 2) : nullptr;
    if (space == nullptr) {
      return fail(EMEL_INVALID_ARGUMENT, "merge %u is not two parts with a space between them", rank);
    }
    const size_t n_left = static_cast<size_t>(static_cast<const uint8_t*>(space) - text.data);
    merge->left.text = {text.data, n_left};
    merge->right.text = {text.data + n_left + 1, text.size - n_left - 1};
    return EMEL_OK;
  }

  // Merges are mostly in the order of the tokens they make, one or several for each: try these before the table.
  uint32_t find_joined(const Merge& merge) {
    if (is_joined(bpe->vocab, last_merged, merge)) return last_merged;
    if (is_joined(bpe->vocab, last_merged + 1, merge)) return last_merged + 1;
    const Slice left = merge.left.text;
    const Slice right = merge.right.text;
    const size_t size = left.size + right.size;
    if (size > bpe->vocab->longest) return kNoToken;
    memcpy(scratch, left.data, left.size);
    memcpy(scratch + left.size, right.data, right.size);
    return find_token(bpe->vocab, {scratch, size});
  }

  void find_tokens(Merge* merge) {
    merge->merged = find_joined(*merge);
    if (merge->merged != kNoToken) last_merged = merge->merged;
    merge->left_id = find_hashed(bpe->vocab, merge->left.text, merge->left.code);
    merge->right_id = find_hashed(bpe->vocab, merge->right.text, merge->right.code);
    merge->code = mix(static_cast<uint64_t>(merge->left_id) << 32 | merge->right_id);
    __builtin_prefetch(&bpe->merges[merge->code & bpe->merges_mask], 1);
  }

  void insert(uint32_t rank, const Merge& merge) {
    if (!merge.can_happen(bpe->vocab)) return;
    for (uint64_t slot = merge.code;; ++slot) {
      MergeSlot* entry = &bpe->merges[slot & bpe->merges_mask];
      if (entry->left_plus_1 == 0) {
        *entry = {merge.left_id + 1, merge.right_id, rank, merge.merged};
        return;
      }
      if (entry->left_plus_1 == merge.left_id + 1 && entry->right == merge.right_id) return;
    }
  }

  emel_status read_batch(uint32_t begin, uint32_t n) {
    Merge merges[kBatch];
    const emel_vocab* vocab = bpe->vocab;
    for (uint32_t i = 0; i < n; ++i) {
      if (emel_status status = read_parts(begin + i, &merges[i])) return status;
      merges[i].left.ask_for_slot(vocab);
      merges[i].right.ask_for_slot(vocab);
    }
    for (uint32_t i = 0; i < n; ++i) {
      merges[i].left.ask_for_offsets(vocab);
      merges[i].right.ask_for_offsets(vocab);
    }
    for (uint32_t i = 0; i < n; ++i) {
      merges[i].left.ask_for_text(vocab);
      merges[i].right.ask_for_text(vocab);
    }
    for (uint32_t i = 0; i < n; ++i) find_tokens(&merges[i]);
    for (uint32_t i = 0; i < n; ++i) insert(begin + i, merges[i]);
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
