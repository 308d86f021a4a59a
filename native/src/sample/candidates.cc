#include "sample/candidates.h"

namespace emel {
namespace {

// Order of floats as order of integers; both zeros are the same.
uint32_t ordered(float x) {
  const float plain = x + 0.0f;
  uint32_t bits;
  memcpy(&bits, &plain, sizeof bits);
  return bits ^ (bits >> 31 != 0 ? 0xffffffffu : 0x80000000u);
}

float from_ordered(uint32_t key) {
  const uint32_t bits = key ^ (key >> 31 != 0 ? 0x80000000u : 0xffffffffu);
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

// The k-th largest of n ordered keys (1 <= k <= n), and how many of its equals are among the k best. Overwrites keys.
Cut kth_largest(uint32_t* keys, uint64_t n, uint64_t k) {
  uint32_t value = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    uint64_t counts[256] = {};
    for (uint64_t i = 0; i < n; ++i) ++counts[keys[i] >> shift & 255];
    uint32_t digit = 255;
    for (; k > counts[digit]; --digit) k -= counts[digit];
    uint64_t n_left = 0;
    for (uint64_t i = 0; i < n; ++i) {
      if ((keys[i] >> shift & 255) == digit) keys[n_left++] = keys[i];
    }
    n = n_left;
    value |= digit << shift;
  }
  return {from_ordered(value), k};
}

// Below it the k best keys have nothing: the k-th largest of the blocks' largest.
float bound_of_best(const float* keys, uint64_t n, uint64_t k, uint32_t* work) {
  const uint64_t n_blocks = n_blocks_of(n);
  if (k > n_blocks) return -kLargest;
  for (uint64_t b = 0; b < n_blocks; ++b) work[b] = ordered(block_max(keys + b * kBlock));
  const float bound = kth_largest(work, n_blocks, k).key;
  return bound > -kLargest ? bound : -kLargest;
}

Cut cut_of_best(const float* keys, uint64_t n, uint64_t k, uint32_t* work) {
  const float bound = bound_of_best(keys, n, k, work);
  uint64_t n_found = 0;
  for (uint64_t b = 0; b < n_blocks_of(n); ++b) {
    const float* block = keys + b * kBlock;
    if (!(block_max(block) >= bound)) continue;
    for (uint64_t i = 0; i < kBlock; ++i) {
      if (block[i] >= bound) work[n_found++] = ordered(block[i]);
    }
  }
  return n_found <= k ? Cut{bound, UINT64_MAX} : kth_largest(work, n_found, k);
}

// Walks candidates of one radix bucket after another, the best first, until their weights reach the mass.
class MassWalk {
 public:
  MassWalk(const float* keys, const float* weights, uint32_t* indices, uint64_t n, double mass, bool is_strict)
      : keys_(keys), weights_(weights), indices_(indices), n_(n), mass_(mass), is_strict_(is_strict) {}

  // Whether the mass is reached; then the cut that keeps what it takes, and how many that are.
  bool find(Cut* cut, uint64_t* n_kept) {
    const uint32_t differing = differing_bits();
    bool is_found = false;
    for (int shift = 24; shift >= 0; shift -= 8) {
      if ((differing >> shift & 255) == 0) continue;
      const bool has_reached = descend(shift);
      if (!has_reached && !is_found) return false;
      is_found = true;
    }
    uint64_t n_ties = 0;
    while (n_ties < n_) {
      before_ += static_cast<double>(weights_[indices_[n_ties++]]);
      if (!is_reached(before_)) continue;
      is_found = true;
      break;
    }
    *cut = {keys_[indices_[0]], n_ties};
    *n_kept = n_before_ + n_ties;
    return is_found;
  }

 private:
  bool is_reached(double sum) const { return is_strict_ ? sum > mass_ : sum >= mass_; }

  // The bits of the keys that are not the same in all.
  uint32_t differing_bits() const {
    const uint32_t first = ordered(keys_[indices_[0]]);
    uint32_t bits = 0;
    for (uint64_t i = 1; i < n_; ++i) bits |= ordered(keys_[indices_[i]]) ^ first;
    return bits;
  }

  // Narrows the candidates to the bucket in which the mass is reached, or to the last one when rounding hides it.
  bool descend(int shift) {
    // Four tallies in turn, joined in a fixed order: neighbours seldom wait for each other's sum.
    double masses[4][256] = {};
    uint32_t counts[4][256] = {};
    for (uint64_t i = 0; i < n_; ++i) {
      const uint32_t digit = ordered(keys_[indices_[i]]) >> shift & 255;
      masses[i & 3][digit] += static_cast<double>(weights_[indices_[i]]);
      ++counts[i & 3][digit];
    }
    bool has_reached = false;
    uint32_t chosen = 0;
    double sum = before_;
    uint64_t n_passed = n_before_;
    for (uint32_t digit = 256; digit-- > 0 && !has_reached;) {
      const uint64_t n = uint64_t{counts[0][digit]} + counts[1][digit] + counts[2][digit] + counts[3][digit];
      if (n == 0) continue;
      before_ = sum;
      n_before_ = n_passed;
      chosen = digit;
      sum += (masses[0][digit] + masses[2][digit]) + (masses[1][digit] + masses[3][digit]);
      n_passed += n;
      has_reached = is_reached(sum);
    }
    uint64_t n_left = 0;
    for (uint64_t i = 0; i < n_; ++i) {  // no branch: it could not be foreseen
      const uint32_t index = indices_[i];
      indices_[n_left] = index;
      n_left += (ordered(keys_[index]) >> shift & 255) == chosen;
    }
    n_ = n_left;
    return has_reached;
  }

  const float* keys_;
  const float* weights_;
  uint32_t* indices_;
  uint64_t n_;
  double mass_;
  bool is_strict_;
  double before_ = 0.0;  // the weights of better buckets
  uint64_t n_before_ = 0;
};

// The indices of keys of at least `from`, ascending.
uint64_t indices_from(const float* keys, uint64_t n_keys, float from, uint32_t* indices) {
  uint64_t n = 0;
  for (uint64_t b = 0; b < n_blocks_of(n_keys); ++b) {
    const float* block = keys + b * kBlock;
    if (!(block_max(block) >= from)) continue;
    for (uint64_t i = 0; i < kBlock; ++i) {  // no branch: it could not be foreseen
      indices[n] = static_cast<uint32_t>(b * kBlock + i);
      n += block[i] >= from;
    }
  }
  return n;
}

// Whether the weights of some candidates are so far from a mass that no order of adding them up reaches it.
bool is_far_below(double mass, const float* weights, const uint32_t* indices, uint64_t n) {
  double sums[4] = {};
  for (uint64_t i = 0; i < n; ++i) sums[i & 3] += static_cast<double>(weights[indices[i]]);
  return (sums[0] + sums[2]) + (sums[1] + sums[3]) < 0.999999 * mass;
}

}  // namespace

uint64_t count(const Candidates& c) {
  using namespace sample_lanes;
  if (!c.is_whole) return c.n;
  I4 n = {};
  for (uint64_t i = 0; i < padded(c.n); i += 4) n -= load(c.logits + i) > of(kGone);  // true is -1
  return uint64_t{static_cast<uint32_t>(n[0])} + static_cast<uint32_t>(n[1]) + static_cast<uint32_t>(n[2]) +
         static_cast<uint32_t>(n[3]);
}

float largest(const Candidates& c) {
  float max = kGone;
  for (uint64_t b = 0; b < n_blocks_of(c.n); ++b) {
    const float m = block_max(c.logits + b * kBlock);
    max = m > max ? m : max;
  }
  return max;
}

uint64_t best(const Candidates& c) {
  const float max = largest(c);
  uint64_t i = 0;
  while (c.logits[i] != max) ++i;
  return i;
}

double weigh(Candidates& c, float max) {
  using namespace sample_lanes;
  double total = 0.0;
  const F4 maxima = of(max);
  for (uint64_t b = 0; b < n_blocks_of(c.n); ++b) {
    const float* logits = c.logits + b * kBlock;
    float* weights = c.weights + b * kBlock;
    for (uint64_t i = 0; i < kBlock; i += 4) store(weights + i, weight4(load(logits + i) - maxima));
    total += static_cast<double>(block_sum(weights));
  }
  return total;
}

void keep(Candidates& c, const float* keys, Cut cut) {
  const float floor = cut.key > -kLargest ? cut.key : -kLargest;  // what is gone stays gone
  uint64_t n = 0;
  for (uint64_t b = 0; b < n_blocks_of(c.n); ++b) {
    const uint64_t begin = b * kBlock;
    if (!(block_max(keys + begin) >= floor)) continue;
    const uint64_t end = begin + kBlock < c.n ? begin + kBlock : c.n;
    for (uint64_t i = begin; i < end; ++i) {
      if (keys[i] == cut.key) {
        if (cut.n_ties == 0) continue;
        --cut.n_ties;
      }
      c.ids[n] = c.id(i);  // n <= i: nothing unread is overwritten
      c.logits[n] = c.logits[i];
      n += keys[i] >= floor;  // no branch: it could not be foreseen
    }
  }
  c.n = n;
  c.is_whole = false;
  for (uint64_t i = n; i < padded(n); ++i) c.logits[i] = kGone;
}

void keep_best(Candidates& c, const float* keys, uint64_t k) {
  if (k < c.n) keep(c, keys, cut_of_best(keys, c.n, k, c.work));
}

uint64_t rank_best(const Candidates& c, uint64_t k, Ranked* ranked) {
  const Cut cut = cut_of_best(c.logits, c.n, k, c.work);
  uint64_t n_ties = cut.n_ties;
  uint64_t n = 0;
  for (uint64_t b = 0; b < n_blocks_of(c.n); ++b) {
    const uint64_t begin = b * kBlock;
    if (!(block_max(c.logits + begin) >= cut.key)) continue;
    for (uint64_t i = begin; i < begin + kBlock; ++i) {
      const float logit = c.logits[i];
      if (!(logit >= cut.key) || (logit == cut.key && n_ties == 0)) continue;
      if (logit == cut.key) --n_ties;
      uint64_t at = n++;
      for (; at > 0 && ranked[at - 1].logit < logit; --at) ranked[at] = ranked[at - 1];
      ranked[at] = {logit, c.id(i)};
    }
  }
  return n;
}

void keep_mass(Candidates& c, const float* keys, double mass, bool is_strict, uint64_t min_keep, float best) {
  Cut cut{kGone, 0};
  uint64_t n_kept = 0;
  bool is_found = false;
  // Nearly always the few that are near the best make up the mass; only when they do not, more are looked at.
  constexpr float kDepths[] = {2.0f, 6.0f, 8.0f, 10.0f, 12.0f, 14.0f, __builtin_inff()};
  constexpr uint64_t kMany = 1024;  // where a walk in vain costs more than adding up before it
  for (const float depth : kDepths) {
    const float from = best - depth > -kLargest ? best - depth : -kLargest;
    const uint64_t n = indices_from(keys, c.n, from, c.work);
    if (n > kMany && is_far_below(mass, c.weights, c.work, n)) continue;
    is_found = n != 0 && MassWalk(keys, c.weights, c.work, n, mass, is_strict).find(&cut, &n_kept);
    if (is_found) break;
  }
  if (!is_found) return;  // all of them together weigh less
  if (n_kept < min_keep) return keep_best(c, keys, min_keep);
  keep(c, keys, cut);
}

}  // namespace emel
