// The merge loop: a word is cut into its smallest units, then pair after pair is joined, lowest rank first, leftmost
// among equals. Short words, which are nearly all of them, rescan a small array; long ones keep their candidates in a
// heap over a linked list, so that a megabyte of one character costs n log n.
//
// A Model says what the units are and which pairs join:
//   uint32_t first_unit(const uint8_t* text, size_t n, size_t* size)    the symbol the text begins with, and its bytes
//   Merge join(uint32_t left, uint32_t right, Slice joined)             the merge of two neighbours and their text
//   size_t write(uint32_t symbol, Slice text, int32_t* ids)             at most text.size ids of what was left over
#pragma once

#include <stdint.h>
#include <string.h>

#include <algorithm>

#include "core/allocation.h"
#include "core/error.h"
#include "text/vocab.h"

namespace emel::text {

inline constexpr uint32_t kNoRank = UINT32_MAX;

struct Merge {
  uint32_t rank;  // kNoRank: the pair does not join
  uint32_t merged;
};

inline constexpr size_t kShortWord = 32;

template <typename Model>
size_t encode_short(const Model& model, Slice word, int32_t* ids) {
  uint32_t symbols[kShortWord];
  uint32_t ranks[kShortWord];  // of the pair (i, i + 1)
  uint32_t merged[kShortWord];
  uint8_t begins[kShortWord + 1];
  size_t n = 0;
  for (size_t begin = 0; begin < word.size; ++n) {
    begins[n] = static_cast<uint8_t>(begin);
    size_t size;
    symbols[n] = model.first_unit(word.data + begin, word.size - begin, &size);
    begin += size;
  }
  begins[n] = static_cast<uint8_t>(word.size);
  const auto look_up = [&](size_t i) {
    const Slice joined{word.data + begins[i], static_cast<size_t>(begins[i + 2] - begins[i])};
    const Merge merge = model.join(symbols[i], symbols[i + 1], joined);
    ranks[i] = merge.rank;
    merged[i] = merge.merged;
  };
  for (size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n > 1) {
    const size_t best = static_cast<size_t>(std::min_element(ranks, ranks + n - 1) - ranks);
    if (ranks[best] == kNoRank) break;
    symbols[best] = merged[best];
    const size_t n_after = n - best - 2;  // symbols behind the pair
    memmove(symbols + best + 1, symbols + best + 2, n_after * sizeof(uint32_t));
    memmove(begins + best + 1, begins + best + 2, n_after + 1);
    --n;
    if (n_after > 0) {
      memmove(ranks + best + 1, ranks + best + 2, (n_after - 1) * sizeof(uint32_t));
      memmove(merged + best + 1, merged + best + 2, (n_after - 1) * sizeof(uint32_t));
      look_up(best);
    }
    if (best > 0) look_up(best - 1);
  }
  size_t written = 0;
  for (size_t i = 0; i < n; ++i) {
    const Slice text{word.data + begins[i], static_cast<size_t>(begins[i + 1] - begins[i])};
    written += model.write(symbols[i], text, ids + written);
  }
  return written;
}

// A pair that was found to join. It is stale once the left symbol is gone or the two no longer cover its bytes.
struct Candidate {
  uint32_t rank;
  uint32_t left;  // position of the left symbol's first byte
  uint32_t size;  // bytes of both symbols
  uint32_t merged;
};

// For the heap functions, which keep the largest on top.
inline bool is_later(const Candidate& a, const Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
}

template <typename Model>
struct LongWord {
  const Model& model;
  Slice word;
  uint32_t* symbols;  // (n,) by position of the first byte
  uint32_t* next;  // n behind the last
  uint32_t* previous;  // n before the first
  bool* is_gone;
  Candidate* heap;  // (3 n,): n - 1 at the start, at most two for each merge
  size_t n_heap;

  uint32_t n() const { return static_cast<uint32_t>(word.size); }

  void propose(uint32_t left) {
    const uint32_t right = next[left];
    if (right == n()) return;
    const uint32_t size = next[right] - left;
    const Merge merge = model.join(symbols[left], symbols[right], {word.data + left, size});
    if (merge.rank == kNoRank) return;
    heap[n_heap++] = {merge.rank, left, size, merge.merged};
    std::push_heap(heap, heap + n_heap, is_later);
  }

  void cut() {
    uint32_t last = n();
    for (uint32_t begin = 0; begin < n();) {
      size_t size;
      symbols[begin] = model.first_unit(word.data + begin, word.size - begin, &size);
      previous[begin] = last;
      last = begin;
      begin = next[begin] = begin + static_cast<uint32_t>(size);
    }
    for (uint32_t i = 0; i < n(); i = next[i]) propose(i);
  }

  void merge_all() {
    while (n_heap > 0) {
      std::pop_heap(heap, heap + n_heap, is_later);
      const Candidate candidate = heap[--n_heap];
      const uint32_t left = candidate.left;
      if (is_gone[left] || next[left] == n()) continue;
      const uint32_t right = next[left];
      if (next[right] - left != candidate.size) continue;
      symbols[left] = candidate.merged;
      is_gone[right] = true;
      next[left] = next[right];
      if (next[left] != n()) previous[next[left]] = left;
      propose(left);
      if (previous[left] != n()) propose(previous[left]);
    }
  }
};

template <typename Model>
emel_status encode_long(const Model& model, Slice word, int32_t* ids, size_t* n_ids) {
  const size_t n = word.size;
  // One allocation: the heap first, it has the strictest alignment.
  Candidate* heap = static_cast<Candidate*>(allocate(n * (3 * sizeof(Candidate) + 3 * sizeof(uint32_t) + 1)));
  if (heap == nullptr) return fail(EMEL_OUT_OF_MEMORY, "no memory to tokenize a word of %zu bytes", n);
  uint32_t* arrays = reinterpret_cast<uint32_t*>(heap + 3 * n);
  bool* is_gone = reinterpret_cast<bool*>(arrays + 3 * n);
  LongWord<Model> state{model, word, arrays, arrays + n, arrays + 2 * n, is_gone, heap, 0};
  state.cut();
  state.merge_all();
  size_t written = 0;
  for (uint32_t i = 0; i < n; i = state.next[i]) {
    written += model.write(state.symbols[i], {word.data + i, state.next[i] - i}, ids + written);
  }
  release(heap);
  *n_ids = written;
  return EMEL_OK;
}

// Encodes one word (not empty) into at most word.size ids. Fails only when memory is out.
template <typename Model>
emel_status encode_by_merging(const Model& model, Slice word, int32_t* ids, size_t* n_ids) {
  if (word.size > kShortWord) return encode_long(model, word, ids, n_ids);
  *n_ids = encode_short(model, word, ids);
  return EMEL_OK;
}

}  // namespace emel::text
