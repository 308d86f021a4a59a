// The tokens that can still be chosen, always by ascending id, and what narrows them.
//
// At first they are whole: logits[i] is token i's, kGone where it is out. What a cut leaves is packed: ids[i] says which
// token logits[i] is of. "Better" means a larger key, and among equal keys a lower id.
#pragma once

#include <stdint.h>

#include "sample/blocks.h"

namespace emel {

// Cuts keep keys above `key`, and the first n_ties of those that equal it.
struct Cut {
  float key;
  uint64_t n_ties;
};

struct Candidates {
  float* logits;  // all arrays: room for padded(n_vocab); filled up with kGone
  int32_t* ids;
  float* weights;  // as weigh() left them; 0 in the filling
  float* keys;
  uint32_t* work;
  uint64_t n;
  bool is_whole;

  int32_t id(uint64_t i) const { return is_whole ? static_cast<int32_t>(i) : ids[i]; }
};

// How many are left.
uint64_t count(const Candidates& c);
// The largest logit; kGone when none is left.
float largest(const Candidates& c);
// The index of the best.
uint64_t best(const Candidates& c);
// Fills weights with exp(logit - max); their sum.
double weigh(Candidates& c, float max);

// Keeps what the cut does by its keys (c.logits or c.keys), packed.
void keep(Candidates& c, const float* keys, Cut cut);
// Keeps logits of at least threshold.
inline void keep_from(Candidates& c, float threshold) { keep(c, c.logits, {threshold, UINT64_MAX}); }
// Keeps the k best of the keys.
void keep_best(Candidates& c, const float* keys, uint64_t k);
// Fills ranked with the best up to k, the best first; returns how many. Leaves the candidates as they are.
struct Ranked {
  float logit;
  int32_t id;
};
uint64_t rank_best(const Candidates& c, uint64_t k, Ranked* ranked);
// Keeps the shortest beginning, best key first, whose weights reach the mass (exceed it, if is_strict), at least
// min_keep long. No key is above `best`.
void keep_mass(Candidates& c, const float* keys, double mass, bool is_strict, uint64_t min_keep, float best);

}  // namespace emel
