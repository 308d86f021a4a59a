#include "sample/steps.h"

#include "core/math.h"
#include "sample/history.h"

namespace emel {
namespace {

constexpr double kLn2 = 0.69314718055994530942;
// A temperature below it takes the largest logit: 1/temperature times a difference of logits means nothing any more.
constexpr double kSmallestTemperature = 1e-6;
constexpr uint64_t kMirostatTokens = 100;  // that the exponent of Zipf's law is estimated from, as llama.cpp does

// x^y of x > 0.
double power(double x, double y) {
  const double exponent = y * logarithm(x);
  return exponential(exponent < 700.0 ? exponent : 700.0);
}

// The entropy of the candidates in nats, given their weights.
double entropy(const Candidates& c, float max, double total) {
  using namespace sample_lanes;
  double sum = 0.0;
  for (uint64_t b = 0; b < n_blocks_of(c.n); ++b) {
    float products[kBlock];
    for (uint64_t i = 0; i < kBlock; i += 4) {
      const F4 off = load(c.logits + b * kBlock + i) - of(max);
      store(products + i, load(c.weights + b * kBlock + i) * sample_lanes::max(off, of(-88.0f)));  // 0 below -87
    }
    sum += static_cast<double>(block_sum(products));
  }
  return logarithm(total) - sum / total;
}

// Four sums in turn, joined in a fixed order, of value(logit) for what is left.
template <typename Value>
double sum_of(const Candidates& c, Value value) {
  double sums[4] = {};
  for (uint64_t i = 0; i < padded(c.n); ++i) sums[i & 3] += c.logits[i] > kGone ? value(c.logits[i]) : 0.0;
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

// Calls found(index) for each candidate whose weight is at least `least`, which is above 0 or all are found.
template <typename Found>
void for_each_from(const Candidates& c, double least, Found found) {
  for (uint64_t b = 0; b < n_blocks_of(c.n); ++b) {
    if (static_cast<double>(block_max(c.weights + b * kBlock)) < least) continue;
    for (uint64_t i = b * kBlock; i < b * kBlock + kBlock; ++i) {
      if (c.logits[i] != kGone && static_cast<double>(c.weights[i]) >= least) found(i);
    }
  }
}

}  // namespace

void top_n_sigma(Candidates& c, float n) {
  const double n_left = static_cast<double>(count(c));
  const double mean = sum_of(c, [](float logit) { return static_cast<double>(logit); }) / n_left;
  const double squares = sum_of(c, [mean](float logit) {
    const double off = static_cast<double>(logit) - mean;
    return off * off;
  });
  const double deviation = __builtin_sqrt(squares / n_left);
  keep_from(c, finite(static_cast<double>(largest(c)) - static_cast<double>(n) * deviation));
}

void typical_p(Candidates& c, float p, uint64_t min_keep) {
  using namespace sample_lanes;
  const float max = largest(c);
  const double total = weigh(c, max);
  // -log p(i) - entropy = center - (logit(i) - max)
  const float center = static_cast<float>(logarithm(total) - entropy(c, max, total));
  for (uint64_t i = 0; i < padded(c.n); i += 4) {
    const F4 logits = load(c.logits + i);
    const F4 off = of(center) - (logits - of(max));
    const F4 key = off > of(0.0f) ? -off : off;
    store(c.keys + i, logits > of(kGone) ? key : of(kGone));
  }
  keep_mass(c, c.keys, static_cast<double>(p) * total, true, min_keep, 0.0f);
}

void top_p(Candidates& c, float p, uint64_t min_keep) {
  const float max = largest(c);
  const double total = weigh(c, max);
  keep_mass(c, c.logits, static_cast<double>(p) * total, false, min_keep, max);
}

void min_p(Candidates& c, float p, uint64_t min_keep) {
  const float threshold = finite(static_cast<double>(largest(c)) + logarithm(static_cast<double>(p)));
  uint64_t n = 0;
  for (uint64_t i = 0; i < c.n && n < min_keep; ++i) n += c.logits[i] >= threshold;
  if (n < min_keep) return keep_best(c, c.logits, min_keep);
  keep_from(c, threshold);
}

void xtc(Candidates& c, const emel_sampling& s, double chance) {
  const uint64_t n_left = count(c);
  if (s.xtc_threshold > 0.5f || n_left < 2 || chance > static_cast<double>(s.xtc_probability)) return;
  const double least = static_cast<double>(s.xtc_threshold) * weigh(c, largest(c));
  uint64_t n_above = 0;
  uint64_t last = 0;  // the least likely of them, the highest id among equals
  for_each_from(c, least, [&](uint64_t i) {
    if (n_above++ == 0 || c.logits[i] <= c.logits[last]) last = i;
  });
  if (n_above < 2 || n_left - (n_above - 1) < s.min_keep) return;
  for_each_from(c, least, [&](uint64_t i) {
    if (i != last) c.logits[i] = kGone;
  });
  if (!c.is_whole) keep_from(c, -kLargest);
}

void temperature(Candidates& c, double value) {
  using namespace sample_lanes;
  const float max = largest(c);
  const double size = static_cast<double>(max < 0.0f ? -max : max);
  if (value < kSmallestTemperature || size / value > 1e38) return keep_from(c, max);  // the rest has no weight left
  const F4 divisor = of(static_cast<float>(value));
  for (uint64_t i = 0; i < padded(c.n); i += 4) store(c.logits + i, load(c.logits + i) / divisor);
}

void dynamic_temperature(Candidates& c, const emel_sampling& s) {
  const uint64_t n_left = count(c);
  if (n_left < 2) return;
  const float max = largest(c);
  const double total = weigh(c, max);
  const double part = entropy(c, max, total) / logarithm(static_cast<double>(n_left));
  const double exponent = static_cast<double>(s.dynatemp_exponent);
  const double middle = static_cast<double>(s.temperature);
  const double range = static_cast<double>(s.dynatemp_range);
  const double low = middle > range ? middle - range : 0.0;
  const double risen = part > 0.0 ? power(part, exponent) : exponent == 0.0 ? 1.0 : 0.0;
  temperature(c, low + (middle + range - low) * risen);
}

// Algorithm 1 of Basu et al., Mirostat (ICLR 2021, arXiv:2007.14966), with llama.cpp's estimate from 100 tokens.
void mirostat_1(Candidates& c, float mu, uint64_t n_vocab) {
  Ranked ranked[kMirostatTokens];
  const uint64_t n = rank_best(c, kMirostatTokens, ranked);
  if (n < 2) return keep_best(c, c.logits, 1);
  double products = 0.0;
  double squares = 0.0;
  for (uint64_t i = 0; i + 1 < n; ++i) {
    const double t = logarithm(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    products += t * (static_cast<double>(ranked[i].logit) - static_cast<double>(ranked[i + 1].logit));
    squares += t * t;
  }
  const double s_hat = products / squares;
  const double epsilon = s_hat - 1.0;
  const double log_vocab = logarithm(static_cast<double>(n_vocab));
  // epsilon 2^mu / (1 - n_vocab^-epsilon), whose limit at epsilon = 0 is 2^mu / ln n_vocab
  const double spread = 1.0 - exponential(finite(-epsilon * log_vocab));
  const double slope = epsilon * epsilon < 1e-18 ? 1.0 / log_vocab : epsilon / spread;
  const double log_k = logarithm(slope) + static_cast<double>(mu) * kLn2;
  const double most = logarithm(static_cast<double>(c.n)) + 1.0;
  const double bounded = log_k < most * s_hat ? log_k / s_hat : most;  // s_hat may be 0
  const double k = exponential(bounded);
  keep_best(c, c.logits, k < 1.0 ? 1 : static_cast<uint64_t>(k));
}

void mirostat_2(Candidates& c, float mu) {
  const float max = largest(c);
  const double total = weigh(c, max);
  const double above = logarithm(total) - static_cast<double>(mu) * kLn2;  // the largest, in nats
  if (above > 0.0) return keep_best(c, c.logits, 1);
  keep_from(c, finite(static_cast<double>(max) + above));
}

}  // namespace emel
