// Digests of sampling: chains of steps over seeded logits, and log probabilities. No route has a part in them: what they
// hold together is CPU families.
#include "cases.h"

namespace emel_cases {
namespace {

constexpr uint32_t kUsual[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};

struct Chain {
  const char* name;
  void (*set)(emel_sampling& s);
};

// Every step off.
emel_sampling plain(const uint32_t* steps, uint32_t n_steps) {
  emel_sampling s{};
  s.temperature = s.typical_p = s.top_p = s.repeat_penalty = s.dynatemp_exponent = 1.0f;
  s.dry_base = 1.75f;
  s.mirostat_mu = 6.0f;
  s.n_steps = n_steps;
  for (uint32_t i = 0; i < n_steps; ++i) s.steps[i] = steps[i];
  return s;
}

constexpr Chain kChains[] = {
    {"choose", [](emel_sampling&) {}},
    {"choose_usual",
     [](emel_sampling& s) {
       s.temperature = 0.8f;
       s.top_k = 40;
       s.top_p = 0.95f;
       s.min_p = 0.05f;
     }},
    {"choose_top_p", [](emel_sampling& s) { s.top_p = 0.9f; }},
    {"choose_typical", [](emel_sampling& s) { s.typical_p = 0.7f; }},
    {"choose_sigma", [](emel_sampling& s) { s.top_n_sigma = 1.5f; }},
    {"choose_dynamic",
     [](emel_sampling& s) {
       s.dynatemp_range = 0.7f;
       s.dynatemp_exponent = 1.3f;
     }},
    {"choose_xtc",
     [](emel_sampling& s) {
       s.xtc_probability = 0.5f;
       s.xtc_threshold = 0.01f;
     }},
    {"choose_history",
     [](emel_sampling& s) {
       s.repeat_penalty = 1.3f;
       s.presence_penalty = 0.3f;
       s.frequency_penalty = 0.1f;
       s.repeat_last_n = s.dry_penalty_last_n = -1;
       s.dry_multiplier = 0.8f;
       s.dry_allowed_length = 1;
     }},
    {"choose_mirostat_1", [](emel_sampling& s) { s.mirostat = 1; }},
    {"choose_mirostat_2", [](emel_sampling& s) { s.mirostat = 2; }},
};

void fill(Random& random, float* logits, size_t n) {
  for (size_t i = 0; i < n; ++i) logits[i] = 4.0f * (random.value() + random.value() * random.value());
}

// The tokens and surprises of 100 choices.
void digest_chain(const Chain& chain, size_t n_vocab) {
  Random random{n_vocab};
  Bytes logits(4 * n_vocab);
  Bytes history(4 * 50);
  for (int i = 0; i < 50; ++i) history.ints()[i] = static_cast<int32_t>(random.next() % (n_vocab < 5 ? n_vocab : 5));
  emel_sampling s = plain(kUsual, 9);
  chain.set(s);
  s.history = history.ints();
  s.n_history = 50;
  s.seed = 77;
  Bytes scratch(emel_choose_scratch(n_vocab, s.n_history));
  uint64_t hash = fnv1a(chain.name, strlen(chain.name));
  for (uint64_t position = 0; position < 100; ++position) {
    if (position % 10 == 0) fill(random, logits.floats(), n_vocab);
    s.position = position;
    emel_choice choice;
    require(emel_choose(logits.floats(), n_vocab, &s, scratch.data, scratch.size, &choice));
    hash = fnv1a(&choice, sizeof choice, hash);
  }
  report(chain.name, n_vocab, 100, 0, hash);
}

void digest_logprobs(size_t n_vocab) {
  Random random{n_vocab + 1};
  Bytes logits(4 * n_vocab);
  fill(random, logits.floats(), n_vocab);
  Bytes scratch(emel_choose_scratch(n_vocab, 0));
  const size_t n_top = n_vocab < EMEL_MAX_TOP_LOGPROBS ? n_vocab : EMEL_MAX_TOP_LOGPROBS;
  int32_t ids[1 + EMEL_MAX_TOP_LOGPROBS];
  double logprobs[1 + EMEL_MAX_TOP_LOGPROBS];
  require(emel_logprobs(logits.floats(), n_vocab, 0, n_top, scratch.data, scratch.size, ids, logprobs));
  const uint64_t hash = fnv1a(ids, 4 * (1 + n_top));
  report("logprobs", n_vocab, n_top, 0, fnv1a(logprobs, 8 * (1 + n_top), hash));
}

}  // namespace

void digest_sampling() {
  constexpr size_t kVocabularies[] = {7, 65, 5000};
  for (const size_t n_vocab : kVocabularies) {
    for (const Chain& chain : kChains) digest_chain(chain, n_vocab);
    digest_logprobs(n_vocab);
  }
}

}  // namespace emel_cases
