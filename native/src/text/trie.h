// The texts of some tokens of a vocabulary as a trie, for finding all those that begin at a place in a text.
//
// Nodes are numbered breadth first, so the children of node i are first_child[i] .. first_child[i + 1], in ascending
// order of their labels, and need no pointers. The root's children have a table of their own.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "emel_text.h"
#include "text/vocab.h"

struct emel_trie {
  const emel_vocab* vocab;
  uint32_t n_nodes;
  uint32_t* first_child;  // (n_nodes + 1,)
  uint8_t* labels;  // (n_nodes,) the byte that leads here
  uint32_t* tokens;  // (n_nodes,) the token whose text ends here, or kNoToken
  uint32_t of_first_byte[256];  // 0 where no text begins with it
};

namespace emel::text {

// Calls found(size, id) for every text that begins at the n bytes of text, the shortest first.
template <typename Found>
void find_all(const emel_trie* trie, const uint8_t* text, size_t n, Found found) {
  if (n == 0) return;
  uint32_t node = trie->of_first_byte[text[0]];
  for (size_t size = 1; node != 0; ++size) {
    if (trie->tokens[node] != kNoToken) found(size, trie->tokens[node]);
    if (size == n) return;
    uint32_t low = trie->first_child[node];
    uint32_t high = trie->first_child[node + 1];
    const uint8_t byte = text[size];
    while (high - low > 4) {
      const uint32_t middle = (low + high) / 2;
      if (trie->labels[middle] > byte) high = middle;
      else low = middle;
    }
    while (low < high && trie->labels[low] != byte) ++low;
    node = low < high ? low : 0;
  }
}

// The longest of them; its size is 0 if there is none.
struct Match {
  size_t size;
  uint32_t id;
};

inline Match find_longest(const emel_trie* trie, const uint8_t* text, size_t n) {
  Match longest{0, kNoToken};
  find_all(trie, text, n, [&](size_t size, uint32_t id) { longest = {size, id}; });
  return longest;
}

}  // namespace emel::text
