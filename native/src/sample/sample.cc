// The sampling chain over one row of logits: top-k, top-p, min-p, temperature, draw.
//
// What is kept is a set; the draw walks it by ascending id. Sums have a fixed order, exp is EMEL's own, and the draw is
// a hash of (seed, position), so a token depends on its logits, parameters, seed and position alone. The vocabulary is
// sorted only as far as the kept set reaches.
#include <string.h>

#include "core/error.h"
#include "core/float_environment.h"
#include "core/math.h"
#include "emel.h"

namespace emel {
namespace {

struct Candidate {
  float logit;
  int32_t id;
};

bool before(const Candidate& a, const Candidate& b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

void sift_down(Candidate* heap, uint64_t root, uint64_t n) {
  const Candidate moved = heap[root];
  for (uint64_t child = 2 * root + 1; child < n; child = 2 * root + 1) {
    if (child + 1 < n && before(heap[child], heap[child + 1])) ++child;
    if (!before(moved, heap[child])) break;
    heap[root] = heap[child];
    root = child;
  }
  heap[root] = moved;
}

// A heap whose root is the worst, into order: the best first.
void sort_heap(Candidate* heap, uint64_t n) {
  for (uint64_t left = n; left-- > 1;) {
    const Candidate worst = heap[0];
    heap[0] = heap[left];
    heap[left] = worst;
    sift_down(heap, 0, left);
  }
}

// The first n candidates in order: a heap of the n best whose root is the worst of them, then sorted.
void keep_best(const float* logits, uint64_t n_vocab, Candidate* heap, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) heap[i] = {logits[i], static_cast<int32_t>(i)};
  for (uint64_t i = n / 2; i-- > 0;) sift_down(heap, i, n);
  for (uint64_t i = n; i < n_vocab; ++i) {
    const Candidate next{logits[i], static_cast<int32_t>(i)};
    if (!before(next, heap[0])) continue;
    heap[0] = next;
    sift_down(heap, 0, n);
  }
  sort_heap(heap, n);
}

double weight_of(const Candidate& candidate, float max) {
  return exponential(static_cast<double>(candidate.logit) - static_cast<double>(max));
}

// How many of the candidates, sorted, the nucleus keeps; n when they do not reach its mass.
uint64_t nucleus(const Candidate* candidates, uint64_t n, float max, double mass) {
  double sum = 0.0;
  for (uint64_t i = 0; i < n; ++i) {
    sum += weight_of(candidates[i], max);
    if (sum >= mass) return i + 1;
  }
  return n;
}

void sort_best_first(Candidate* candidates, uint64_t n) {
  for (uint64_t i = n / 2; i-- > 0;) sift_down(candidates, i, n);
  sort_heap(candidates, n);
}

void sort_by_id(Candidate* candidates, uint64_t n) {
  for (uint64_t gap = n / 2; gap > 0; gap /= 2) {  // shellsort: what cuts leave is small
    for (uint64_t i = gap; i < n; ++i) {
      const Candidate moved = candidates[i];
      uint64_t at = i;
      for (; at >= gap && candidates[at - gap].id > moved.id; at -= gap) candidates[at] = candidates[at - gap];
      candidates[at] = moved;
    }
  }
}

// The candidates at most `depth` below the largest logit, by ascending id.
uint64_t collect(const float* logits, uint64_t n_vocab, float max, float depth, Candidate* out) {
  uint64_t n = 0;
  for (uint64_t i = 0; i < n_vocab; ++i) {
    if (max - logits[i] <= depth) out[n++] = {logits[i], static_cast<int32_t>(i)};
  }
  return n;
}

// No candidate further below the largest logit has a weight above zero, at the highest temperature.
constexpr float kAllDepth = 1e30f;

// The nucleus of the whole vocabulary, sorted: as many candidates as it takes are looked at.
uint64_t nucleus_of_all(const float* logits, uint64_t n_vocab, float max, float top_p, Candidate* out) {
  double total = 0.0;
  for (uint64_t i = 0; i < n_vocab; ++i) total += weight_of({logits[i], 0}, max);
  const double mass = static_cast<double>(top_p) * total;
  for (float depth = 4.0f;; depth *= 2.0f) {
    const bool is_all = depth > 1024.0f;
    const uint64_t n = collect(logits, n_vocab, max, is_all ? kAllDepth : depth, out);
    sort_best_first(out, n);
    const uint64_t kept = nucleus(out, n, max, mass);
    double sum = 0.0;
    for (uint64_t i = 0; i < kept; ++i) sum += weight_of(out[i], max);
    if (sum >= mass || is_all) return kept;
  }
}

float largest_of(const float* logits, uint64_t n) {
  float max = logits[0];
  for (uint64_t i = 1; i < n; ++i) max = logits[i] > max ? logits[i] : max;
  return max;
}

// Fills candidates with what top-k, top-p and min-p keep, by ascending id; returns how many.
uint64_t keep(const float* logits, uint64_t n_vocab, const emel_sampling& s, Candidate* candidates) {
  const float max = largest_of(logits, n_vocab);
  const bool has_top_k = s.top_k != 0 && s.top_k < n_vocab;
  const bool is_sorted = has_top_k || s.top_p < 1.0f;  // the best first
  uint64_t n;
  if (has_top_k) {
    n = s.top_k;
    keep_best(logits, n_vocab, candidates, n);
    if (s.top_p < 1.0f) {
      double total = 0.0;
      for (uint64_t i = 0; i < n; ++i) total += weight_of(candidates[i], max);
      n = nucleus(candidates, n, max, static_cast<double>(s.top_p) * total);
    }
  } else if (s.top_p < 1.0f) {
    n = nucleus_of_all(logits, n_vocab, max, s.top_p, candidates);
  } else {
    // Anything min-p keeps lies above the logarithm of it; one more for the rounding.
    const float depth = s.min_p > 0.0f ? static_cast<float>(1.0 - logarithm(static_cast<double>(s.min_p))) : kAllDepth;
    n = collect(logits, n_vocab, max, depth, candidates);
  }
  uint64_t kept = 0;
  for (uint64_t i = 0; i < n; ++i) {
    if (weight_of(candidates[i], max) >= static_cast<double>(s.min_p)) candidates[kept++] = candidates[i];
  }
  if (is_sorted) sort_by_id(candidates, kept);
  return kept;
}

// SplitMix64's finaliser (Steele, Lea, Flood 2014) over seed and counter: 53 uniform bits in [0, 1).
double uniform(uint64_t seed, uint64_t counter) {
  uint64_t z = seed + 0x9e3779b97f4a7c15u * (counter + 1);
  for (int round = 0; round < 2; ++round) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    z += seed;
  }
  return static_cast<double>(z >> 11) * 0x1.0p-53;
}

int32_t draw(const Candidate* candidates, uint64_t n, float max, const emel_sampling& s) {
  const double inverse = 1.0 / static_cast<double>(s.temperature);
  const auto weight = [&](uint64_t i) {
    return exponential((static_cast<double>(candidates[i].logit) - static_cast<double>(max)) * inverse);
  };
  double total = 0.0;
  for (uint64_t i = 0; i < n; ++i) total += weight(i);
  const double target = uniform(s.seed, s.position) * total;
  double sum = 0.0;
  int32_t last = candidates[0].id;
  for (uint64_t i = 0; i < n; ++i) {
    const double w = weight(i);
    if (w == 0.0) continue;
    sum += w;
    last = candidates[i].id;
    if (target < sum) break;
  }
  return last;
}

bool in_range(const emel_sampling& s) {
  return s.temperature > 0.0f && s.temperature <= 1e6f && s.top_p >= 0.0f && s.top_p <= 1.0f && s.min_p >= 0.0f &&
         s.min_p <= 1.0f;
}

bool all_finite(const float* logits, uint64_t n) {
  uint32_t largest = 0;
  for (uint64_t i = 0; i < n; ++i) {
    uint32_t bits;
    memcpy(&bits, logits + i, 4);
    bits &= 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  return largest < 0x7f800000u;
}

}  // namespace
}  // namespace emel

uint64_t emel_sample_scratch(uint64_t n_vocab) { return n_vocab * sizeof(emel::Candidate); }

emel_status emel_sample(const float* logits, uint64_t n_vocab, const emel_sampling* sampling, void* scratch,
                        uint64_t scratch_bytes, int32_t* token) {
  if (logits == nullptr || sampling == nullptr || scratch == nullptr || token == nullptr || n_vocab == 0 ||
      n_vocab > INT32_MAX || scratch_bytes < emel_sample_scratch(n_vocab)) {
    return emel::fail(EMEL_INVALID_ARGUMENT, "sample: a required pointer is NULL or the scratch is too small");
  }
  if (!emel::in_range(*sampling)) {
    return emel::fail(EMEL_INVALID_ARGUMENT,
                      "sample: temperature %g (0 to 1e6, not 0), top_p %g (0 to 1), min_p %g (0 to 1)",
                      static_cast<double>(sampling->temperature), static_cast<double>(sampling->top_p),
                      static_cast<double>(sampling->min_p));
  }
  if (!emel::all_finite(logits, n_vocab)) return emel::fail(EMEL_INVALID_ARGUMENT, "sample: logits are not finite");
  const emel::FloatEnvironment environment;
  auto* candidates = static_cast<emel::Candidate*>(scratch);
  const uint64_t kept = emel::keep(logits, n_vocab, *sampling, candidates);
  *token = emel::draw(candidates, kept, emel::largest_of(logits, n_vocab), *sampling);
  return EMEL_OK;
}
