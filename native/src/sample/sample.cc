// The sampling chain over one row of logits: top-k, top-p, min-p, temperature, draw.
//
// Everything is in a fixed order (candidates by logit descending, then id ascending), exp is EMEL's own, and the
// draw is a hash of (seed, position), so a token depends on its logits, parameters, seed and position alone.
#include <math.h>
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
  for (uint64_t left = n; left-- > 1;) {
    const Candidate worst = heap[0];
    heap[0] = heap[left];
    heap[left] = worst;
    sift_down(heap, 0, left);
  }
}

// Candidates (sorted) kept by the nucleus and then by min-p, at temperature 1.
uint64_t cut_tail(const Candidate* candidates, uint64_t n, float top_p, float min_p) {
  const double max = static_cast<double>(candidates[0].logit);
  uint64_t kept = n;
  if (top_p < 1.0f) {
    double total = 0.0;
    for (uint64_t i = 0; i < n; ++i) total += exponential(static_cast<double>(candidates[i].logit) - max);
    double sum = 0.0;
    for (kept = 0; kept < n;) {
      sum += exponential(static_cast<double>(candidates[kept++].logit) - max);
      if (sum >= static_cast<double>(top_p) * total) break;
    }
  }
  if (min_p > 0.0f) {
    while (kept > 1 &&
           exponential(static_cast<double>(candidates[kept - 1].logit) - max) < static_cast<double>(min_p)) {
      --kept;
    }
  }
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

int32_t draw(const Candidate* candidates, uint64_t n, const emel_sampling& s) {
  const double max = static_cast<double>(candidates[0].logit);
  const double inverse = 1.0 / static_cast<double>(s.temperature);
  double total = 0.0;
  for (uint64_t i = 0; i < n; ++i) total += exponential((static_cast<double>(candidates[i].logit) - max) * inverse);
  const double target = uniform(s.seed, s.position) * total;
  double sum = 0.0;
  for (uint64_t i = 0; i < n; ++i) {
    sum += exponential((static_cast<double>(candidates[i].logit) - max) * inverse);
    if (target < sum) return candidates[i].id;
  }
  return candidates[n - 1].id;
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
  const uint64_t top_k = sampling->top_k == 0 || sampling->top_k > n_vocab ? n_vocab : sampling->top_k;
  emel::keep_best(logits, n_vocab, candidates, top_k);
  const uint64_t kept = emel::cut_tail(candidates, top_k, sampling->top_p, sampling->min_p);
  *token = emel::draw(candidates, kept, *sampling);
  return EMEL_OK;
}
