// The next token: what rules tokens out, the steps in the order asked for, the draw.
//
// A draw is a hash of (seed, position), sums have a fixed order and exp and log are EMEL's own, so a token depends on
// its logits, parameters, history, seed and position alone.
#include "core/error.h"
#include "core/float_environment.h"
#include "core/math.h"
#include "emel.h"
#include "sample/candidates.h"
#include "sample/history.h"
#include "sample/steps.h"

namespace emel {
namespace {

constexpr double kLn2 = 0.69314718055994530942;
constexpr uint64_t kLargestHistory = uint64_t{1} << 31;

// Candidates whose arrays lie in the scratch, one after the other: see scratch_bytes.
Candidates place(void* scratch, uint64_t n_vocab) {
  const uint64_t n = padded(n_vocab);
  auto* floats = static_cast<float*>(scratch);
  return {.logits = floats,
          .ids = reinterpret_cast<int32_t*>(floats + 3 * n),
          .weights = floats + n,
          .keys = floats + 2 * n,
          .work = reinterpret_cast<uint32_t*>(floats + 4 * n),
          .n = n_vocab,
          .is_whole = true};
}
uint64_t scratch_bytes(uint64_t n_vocab, uint64_t n_history) { return 4 * (5 * padded(n_vocab) + n_history); }

// Copies the logits; false when one is not finite.
bool load_logits(Candidates& c, const float* logits) {
  uint32_t largest = 0;
  for (uint64_t i = 0; i < c.n; ++i) {
    uint32_t bits;
    memcpy(&bits, logits + i, 4);
    bits &= 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  memcpy(c.logits, logits, 4 * c.n);
  for (uint64_t i = c.n; i < padded(c.n); ++i) c.logits[i] = kGone;
  return largest < 0x7f800000u;
}

void rule_out(Candidates& c, const uint32_t* allowed) {
  for (uint64_t begin = 0; begin < c.n; begin += 32) {
    const uint64_t n = c.n - begin < 32 ? c.n - begin : 32;
    const uint32_t word = allowed[begin / 32];
    if (word == 0xffffffffu) continue;
    for (uint64_t i = 0; i < n; ++i) {
      if ((word >> i & 1) == 0) c.logits[begin + i] = kGone;
    }
  }
}

void add_biases(Candidates& c, const emel_sampling& s) {
  for (uint64_t i = 0; i < s.n_biases; ++i) {
    float& logit = c.logits[s.biases[i].token];
    if (logit == kGone) continue;
    const float bias = s.biases[i].bias;
    logit = bias == kGone ? kGone : finite(static_cast<double>(logit) + static_cast<double>(bias));
  }
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

// Counters of XTC's coin are those no draw has.
double coin(const emel_sampling& s) { return uniform(s.seed, s.position ^ uint64_t{1} << 63); }

void run_step(Candidates& c, const emel_sampling& s, uint32_t step, uint32_t* z) {
  const uint64_t min_keep = s.min_keep;
  switch (step) {
    case EMEL_STEP_PENALTIES:
      return penalize(c, s);
    case EMEL_STEP_DRY:
      return dry(c, s, z);
    case EMEL_STEP_TOP_N_SIGMA:
      return s.top_n_sigma > 0.0f ? top_n_sigma(c, s.top_n_sigma) : void();
    case EMEL_STEP_TOP_K:
      return s.top_k != 0 ? keep_best(c, c.logits, s.top_k) : void();
    case EMEL_STEP_TYPICAL_P:
      return s.typical_p < 1.0f ? typical_p(c, s.typical_p, min_keep) : void();
    case EMEL_STEP_TOP_P:
      return s.top_p < 1.0f ? top_p(c, s.top_p, min_keep) : void();
    case EMEL_STEP_MIN_P:
      return s.min_p > 0.0f ? min_p(c, s.min_p, min_keep) : void();
    case EMEL_STEP_XTC:
      return s.xtc_probability > 0.0f ? xtc(c, s, coin(s)) : void();
    default:
      if (s.dynatemp_range > 0.0f) return dynamic_temperature(c, s);
      return s.temperature != 1.0f ? temperature(c, static_cast<double>(s.temperature)) : void();
  }
}

// All steps; of a greedy choice, those that change logits.
void run_steps(Candidates& c, const emel_sampling& s, uint32_t* z) {
  if (s.mirostat != 0 && s.temperature != 0.0f) {
    temperature(c, static_cast<double>(s.temperature));
    return s.mirostat == 1 ? mirostat_1(c, s.mirostat_mu, c.n) : mirostat_2(c, s.mirostat_mu);
  }
  for (uint32_t i = 0; i < s.n_steps && s.mirostat == 0; ++i) {
    const uint32_t step = s.steps[i];
    const bool changes_logits = step == EMEL_STEP_PENALTIES || step == EMEL_STEP_DRY;
    if (changes_logits || s.temperature != 0.0f) run_step(c, s, step, z);
  }
}

// The index of one candidate, drawn by weight; *share is its part of all weights.
uint64_t draw(Candidates& c, double chance, double* share) {
  const double total = weigh(c, largest(c));
  const double target = chance * total;
  double sum = 0.0;
  uint64_t last = 0;
  for (uint64_t b = 0; b < n_blocks_of(c.n); ++b) {
    const float* weights = c.weights + b * kBlock;
    const double end = sum + static_cast<double>(block_sum(weights));
    if (end == sum || (target >= end && end < total)) {
      sum = end;
      continue;
    }
    for (uint64_t i = 0; i < kBlock; ++i) {
      if (weights[i] == 0.0f) continue;
      sum += static_cast<double>(weights[i]);
      last = b * kBlock + i;
      if (target < sum) break;
    }
    break;
  }
  *share = static_cast<double>(c.weights[last]) / total;
  return last;
}

struct Bounds {
  const char* name;
  float value;
  float low;
  float high;
};

emel_status check_numbers(const emel_sampling& s) {
  const Bounds all[] = {
      {"temperature", s.temperature, 0.0f, 1e6f},
      {"dynatemp_range", s.dynatemp_range, 0.0f, 1e6f},
      {"dynatemp_exponent", s.dynatemp_exponent, 0.0f, 1e6f},
      {"top_n_sigma", s.top_n_sigma, -1.0f, 1e6f},
      {"typical_p", s.typical_p, 0.0f, 1.0f},
      {"top_p", s.top_p, 0.0f, 1.0f},
      {"min_p", s.min_p, 0.0f, 1.0f},
      {"xtc_probability", s.xtc_probability, 0.0f, 1.0f},
      {"xtc_threshold", s.xtc_threshold, 0.0f, 1.0f},
      {"repeat_penalty", s.repeat_penalty, 1e-6f, 1e6f},
      {"presence_penalty", s.presence_penalty, -1e6f, 1e6f},
      {"frequency_penalty", s.frequency_penalty, -1e6f, 1e6f},
      {"dry_multiplier", s.dry_multiplier, 0.0f, 1e6f},
      {"dry_base", s.dry_base, 0.0f, 1e6f},
      {"mirostat_mu", s.mirostat_mu, -1e6f, 1e6f},
      {"mirostat", static_cast<float>(s.mirostat), 0.0f, 2.0f},
      {"n_steps", static_cast<float>(s.n_steps), 0.0f, static_cast<float>(EMEL_MAX_STEPS)},
  };
  for (const Bounds& each : all) {
    if (each.value >= each.low && each.value <= each.high) continue;
    return fail(EMEL_INVALID_ARGUMENT, "choose: %s is %g: allowed are %g to %g", each.name,
                static_cast<double>(each.value), static_cast<double>(each.low), static_cast<double>(each.high));
  }
  return EMEL_OK;
}

emel_status check_lists(const emel_sampling& s, uint64_t n_vocab) {
  const auto is_token = [n_vocab](int32_t token) { return token >= 0 && static_cast<uint64_t>(token) < n_vocab; };
  if ((s.n_history != 0 && s.history == nullptr) || (s.n_biases != 0 && s.biases == nullptr) ||
      (s.n_breakers != 0 && s.breakers == nullptr) || (s.n_breaker_tails != 0 && s.breaker_tails == nullptr) ||
      s.n_history > kLargestHistory) {
    return fail(EMEL_INVALID_ARGUMENT, "choose: a list is NULL, or the history is longer than 2^31 tokens");
  }
  for (uint32_t i = 0; i < s.n_steps; ++i) {
    if (s.steps[i] < 1 || s.steps[i] > EMEL_STEP_TEMPERATURE) {
      return fail(EMEL_INVALID_ARGUMENT, "choose: step %u is %u (1 to %d)", i, s.steps[i], EMEL_STEP_TEMPERATURE);
    }
  }
  for (uint64_t i = 0; i < s.n_history; ++i) {
    if (is_token(s.history[i])) continue;
    return fail(EMEL_INVALID_ARGUMENT, "choose: token %d of the history is outside the vocabulary", s.history[i]);
  }
  for (uint64_t i = 0; i < s.n_biases; ++i) {
    const float bias = s.biases[i].bias;
    if (is_token(s.biases[i].token) && (bias == kGone || (bias >= -kLargest && bias <= kLargest))) continue;
    return fail(EMEL_INVALID_ARGUMENT, "choose: bias %g of token %d", static_cast<double>(bias), s.biases[i].token);
  }
  for (uint64_t i = 0; i < s.n_breakers; ++i) {
    const emel_breaker& breaker = s.breakers[i];
    const bool is_sorted = i == 0 || s.breakers[i - 1].head <= breaker.head;
    if (is_sorted && uint64_t{breaker.tail} + breaker.n_tail <= s.n_breaker_tails) continue;
    return fail(EMEL_INVALID_ARGUMENT, "choose: breaker %llu is out of order or of bounds",
                static_cast<unsigned long long>(i));
  }
  return EMEL_OK;
}

}  // namespace
}  // namespace emel

uint64_t emel_choose_scratch(uint64_t n_vocab, uint64_t n_history) { return emel::scratch_bytes(n_vocab, n_history); }

emel_status emel_choose(const float* logits, uint64_t n_vocab, const emel_sampling* sampling, void* scratch,
                        uint64_t n_scratch_bytes, emel_choice* choice) {
  if (logits == nullptr || sampling == nullptr || scratch == nullptr || choice == nullptr || n_vocab == 0 ||
      n_vocab > INT32_MAX || n_scratch_bytes < emel::scratch_bytes(n_vocab, sampling->n_history)) {
    return emel::fail(EMEL_INVALID_ARGUMENT, "choose: a required pointer is NULL or the scratch is too small");
  }
  emel_status status = emel::check_numbers(*sampling);
  if (status == EMEL_OK) status = emel::check_lists(*sampling, n_vocab);
  if (status != EMEL_OK) return status;
  const emel::FloatEnvironment environment;
  emel::Candidates c = emel::place(scratch, n_vocab);
  if (!emel::load_logits(c, logits)) return emel::fail(EMEL_INVALID_ARGUMENT, "choose: logits are not finite");
  if (sampling->allowed != nullptr) emel::rule_out(c, sampling->allowed);
  emel::add_biases(c, *sampling);
  if (emel::largest(c) == emel::kGone) return emel::fail(EMEL_INVALID_ARGUMENT, "choose: every token is ruled out");
  emel::run_steps(c, *sampling, c.work + emel::padded(n_vocab));
  double share = 1.0;
  const uint64_t chosen = sampling->temperature == 0.0f
                              ? emel::best(c)
                              : emel::draw(c, emel::uniform(sampling->seed, sampling->position), &share);
  *choice = {c.id(chosen), static_cast<float>((0.0 - emel::logarithm(share)) / emel::kLn2)};
  return EMEL_OK;
}

emel_status emel_logprobs(const float* logits, uint64_t n_vocab, int32_t token, uint64_t n_top, void* scratch,
                          uint64_t n_scratch_bytes, int32_t* ids, double* logprobs) {
  if (logits == nullptr || scratch == nullptr || ids == nullptr || logprobs == nullptr || n_vocab == 0 ||
      n_vocab > INT32_MAX || n_scratch_bytes < emel::scratch_bytes(n_vocab, 0)) {
    return emel::fail(EMEL_INVALID_ARGUMENT, "logprobs: a required pointer is NULL or the scratch is too small");
  }
  if (token < 0 || static_cast<uint64_t>(token) >= n_vocab || n_top > EMEL_MAX_TOP_LOGPROBS || n_top > n_vocab) {
    return emel::fail(EMEL_INVALID_ARGUMENT, "logprobs: token %d of %llu, the top %llu of at most %d", token,
                      static_cast<unsigned long long>(n_vocab), static_cast<unsigned long long>(n_top),
                      EMEL_MAX_TOP_LOGPROBS);
  }
  const emel::FloatEnvironment environment;
  emel::Candidates c = emel::place(scratch, n_vocab);
  if (!emel::load_logits(c, logits)) return emel::fail(EMEL_INVALID_ARGUMENT, "logprobs: logits are not finite");
  const float max = emel::largest(c);
  const double log_total = emel::logarithm(emel::weigh(c, max));
  const auto logprob = [&](float logit) { return static_cast<double>(logit) - static_cast<double>(max) - log_total; };
  emel::Ranked ranked[EMEL_MAX_TOP_LOGPROBS];
  const uint64_t n = n_top == 0 ? 0 : emel::rank_best(c, n_top, ranked);
  ids[0] = token;
  logprobs[0] = logprob(logits[token]);
  for (uint64_t i = 0; i < n; ++i) {
    ids[i + 1] = ranked[i].id;
    logprobs[i + 1] = logprob(ranked[i].logit);
  }
  return EMEL_OK;
}
