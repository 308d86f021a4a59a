// Choosing the experts of a token, and the weighted sum of what they give (Shazeer et al. 2017, arXiv:1701.06538).
#pragma once

namespace emel {
namespace {

// exp(x - max) of each score into out, and their sum: sixteen partial sums and the halving tree, as everywhere.
EMEL_INLINE float exponentials(const float* scores, size_t n, float max, float* out) {
  F32 sum = f_zero();
  for (size_t i = 0; i < n; i += 16) {
    const int left = lanes_left(i, n);
    const F32 s = load_left(scores + i, left);
    store_left(out + i, f_fma(s, f_zero(), f_exp(f_sub(s, f_set1(max)))), left);  // s * 0 keeps what is not finite
    sum = f_add(sum, load_left(out + i, left));
  }
  return tree_sum(sum);
}

EMEL_INLINE float largest_of(const float* values, size_t n) {
  float max = values[0];
  for (size_t i = 1; i < n; ++i) max = values[i] > max ? values[i] : max;
  return max;
}

// The k largest choices in descending order, ties to the lowest id; a NaN is chosen only for want of others.
EMEL_INLINE void choose(const float* choices, size_t n, size_t k, int32_t* ids) {
  for (size_t rank = 0; rank < k; ++rank) {
    size_t best = n;
    for (size_t e = 0; e < n; ++e) {
      bool taken = false;
      for (size_t r = 0; r < rank; ++r) taken = taken || static_cast<size_t>(ids[r]) == e;
      if (taken) continue;
      if (best == n || choices[e] > choices[best] || (choices[best] != choices[best] && choices[e] == choices[e])) {
        best = e;
      }
    }
    ids[rank] = static_cast<int32_t>(best);
  }
}

void top_k(const TopKArgs& a) {
  float scores[kMostExperts];
  float choices[kMostExperts];
  int32_t ids[kMostExperts];
  for (size_t row = a.row_begin; row < a.row_end; ++row) {
    const float* logits = a.logits + row * a.n_experts;
    float* weights = a.weights + row * a.k;
    if (a.gating == kGateSoftmax) {
      const float sum = exponentials(logits, a.n_experts, largest_of(logits, a.n_experts), scores);
      for (size_t e = 0; e < a.n_experts; ++e) scores[e] = scores[e] / sum;
    } else {
      for (size_t e = 0; e < a.n_experts; ++e) {
        const float x = logits[e];
        scores[e] = a.gating == kGateSigmoid ? 0.0f * x + 1.0f / (1.0f + exp_one(-x)) : x;
      }
    }
    for (size_t e = 0; e < a.n_experts; ++e) choices[e] = a.bias == nullptr ? scores[e] : scores[e] + a.bias[e];
    choose(choices, a.n_experts, a.k, ids);
    for (size_t rank = 0; rank < a.k; ++rank) {
      a.ids[row * a.k + rank] = ids[rank];
      weights[rank] = scores[ids[rank]];
    }
    float sum = 0.0f;
    if (a.gating == kGateSoftmaxOfChosen) {
      sum = exponentials(weights, a.k, largest_of(weights, a.k), weights);
    } else if (a.normalize) {
      for (size_t rank = 0; rank < a.k; ++rank) sum = sum + weights[rank];
    }
    for (size_t rank = 0; rank < a.k; ++rank) {
      if (a.gating == kGateSoftmaxOfChosen || a.normalize) weights[rank] = weights[rank] / sum;
      weights[rank] = weights[rank] * a.scale;
    }
  }
}

// Ranks ascending: the order of the sum does not depend on which rows an expert got.
void expert_sum(const ExpertSumArgs& a) {
  for (size_t row = a.row_begin; row < a.row_end; ++row) {
    for (size_t i = 0; i < a.n; i += 16) {
      const int left = lanes_left(i, a.n);
      F32 sum = f_zero();
      for (size_t rank = 0; rank < a.k; ++rank) {
        const size_t place = static_cast<uint32_t>(a.places[row * a.k + rank]);
        const float* from = a.results + (place < a.n_places ? place : 0) * a.n + i;
        sum = f_fma(load_left(from, left), f_set1(a.weights[row * a.k + rank]), sum);
      }
      store_left(a.out + row * a.n + i, sum, left);
    }
  }
}

}  // namespace
}  // namespace emel
