// The merge loop. Short words, which are nearly all of them, rescan a small array; long ones keep their candidates in a
// heap over a linked list, so that a megabyte of one character costs n log n.
#include <string.h>

#include <algorithm>

#include "core/allocation.h"
#include "core/error.h"
#include "text/bpe.h"
#include "text/byte_level.h"

namespace emel::text {
namespace {

constexpr size_t kShortWord = 32;
constexpr uint32_t kNoRank = UINT32_MAX;
constexpr uint32_t kEnd = UINT32_MAX;

struct Candidate {
  uint32_t rank;
  uint32_t left;  // position of the left symbol
  uint32_t left_id;  // what the two symbols were: a candidate is stale once either has changed
  uint32_t right_id;
};

// For the heap functions, which keep the largest on top.
bool is_later(const Candidate& a, const Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
}

void encode_short(const emel_bpe* bpe, Slice word, int32_t* ids, size_t* n_ids) {
  uint32_t symbols[kShortWord];
  uint32_t ranks[kShortWord];  // of the pair (i, i + 1)
  uint32_t merged[kShortWord];
  size_t n = word.size;
  const auto look_up = [&](size_t i) {
    const MergeSlot* merge = find_merge(bpe, symbols[i], symbols[i + 1]);
    ranks[i] = merge ? merge->rank : kNoRank;
    merged[i] = merge ? merge->merged : kNoToken;
  };
  for (size_t i = 0; i < n; ++i) {
    symbols[i] = bpe->byte_token[word.data[i]];
  }
  for (size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n > 1) {
    const size_t best = static_cast<size_t>(std::min_element(ranks, ranks + n - 1) - ranks);
    if (ranks[best] == kNoRank) break;
    symbols[best] = merged[best];
    const size_t n_after = n - best - 2;  // symbols behind the pair
    memmove(symbols + best + 1, symbols + best + 2, n_after * sizeof(uint32_t));
    if (n_after > 0) {
      memmove(ranks + best + 1, ranks + best + 2, (n_after - 1) * sizeof(uint32_t));
      memmove(merged + best + 1, merged + best + 2, (n_after - 1) * sizeof(uint32_t));
      look_up(best);
    }
    --n;
    if (best > 0) look_up(best - 1);
  }
  size_t written = 0;
  for (size_t i = 0; i < n; ++i) {
    if (symbols[i] != kNoToken) ids[written++] = static_cast<int32_t>(symbols[i]);
  }
  *n_ids = written;
}

struct LongWord {
  const emel_bpe* bpe;
  uint32_t* symbols;  // (n,) by position of the first byte
  uint32_t* next;
  uint32_t* previous;
  Candidate* heap;  // (3 n,): n - 1 at the start, at most two for each merge
  size_t n_heap;

  void propose(uint32_t left) {
    const uint32_t right = next[left];
    if (right == kEnd) return;
    const MergeSlot* merge = find_merge(bpe, symbols[left], symbols[right]);
    if (merge == nullptr) return;
    heap[n_heap++] = {merge->rank, left, symbols[left], symbols[right]};
    std::push_heap(heap, heap + n_heap, is_later);
  }

  void merge_all() {
    while (n_heap > 0) {
      std::pop_heap(heap, heap + n_heap, is_later);
      const Candidate candidate = heap[--n_heap];
      const uint32_t left = candidate.left;
      const uint32_t right = next[left];
      const bool is_stale =
          symbols[left] != candidate.left_id || right == kEnd || symbols[right] != candidate.right_id;
      if (is_stale) continue;
      symbols[left] = find_merge(bpe, candidate.left_id, candidate.right_id)->merged;
      symbols[right] = kNoToken;  // no candidate starts here any more
      next[left] = next[right];
      if (next[left] != kEnd) previous[next[left]] = left;
      propose(left);
      if (previous[left] != kEnd) propose(previous[left]);
    }
  }
};

emel_status encode_long(const emel_bpe* bpe, Slice word, int32_t* ids, size_t* n_ids) {
  const uint32_t n = static_cast<uint32_t>(word.size);
  // One allocation: the heap first, it has the strictest alignment.
  Candidate* heap = static_cast<Candidate*>(allocate(word.size * (3 * sizeof(Candidate) + 3 * sizeof(uint32_t))));
  if (heap == nullptr) return fail(EMEL_OUT_OF_MEMORY, "no memory to tokenize a word of %zu bytes", word.size);
  uint32_t* arrays = reinterpret_cast<uint32_t*>(heap + 3 * word.size);
  LongWord state{bpe, arrays, arrays + n, arrays + 2 * static_cast<size_t>(n), heap, 0};
  for (uint32_t i = 0; i < n; ++i) {
    state.symbols[i] = bpe->byte_token[word.data[i]];
    state.next[i] = i + 1 == n ? kEnd : i + 1;
    state.previous[i] = i == 0 ? kEnd : i - 1;
  }
  for (uint32_t i = 0; i < n; ++i) state.propose(i);
  state.merge_all();
  size_t written = 0;
  for (uint32_t i = 0; i != kEnd; i = state.next[i]) {
    if (state.symbols[i] != kNoToken) ids[written++] = static_cast<int32_t>(state.symbols[i]);
  }
  release(heap);
  *n_ids = written;
  return EMEL_OK;
}

// The token that is the whole word, unless it is one that text must never turn into.
uint32_t whole_word(const emel_bpe* bpe, Slice word) {
  constexpr size_t kLongestWord = 512;
  uint8_t text[2 * kLongestWord];
  if (word.size > kLongestWord || word.size > bpe->longest) return kNoToken;
  size_t n = 0;
  for (size_t i = 0; i < word.size; ++i) n += encode_byte(word.data[i], text + n);
  const uint32_t id = find_token(bpe, {text, n});
  if (id == kNoToken) return kNoToken;
  const uint8_t type = bpe->types[id];
  return type == EMEL_TOKEN_NORMAL || type == EMEL_TOKEN_USER_DEFINED ? id : kNoToken;
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
  if (word.size > kShortWord) return encode_long(bpe, word, ids, n_ids);
  encode_short(bpe, word, ids, n_ids);
  return EMEL_OK;
}

}  // namespace emel::text
