#include "sample/history.h"

#include "core/math.h"

namespace emel {
namespace {

// The last tokens of the history, seen from its end: 0 is the latest.
struct Window {
  const int32_t* end;
  uint64_t n;
  int32_t operator[](uint64_t i) const { return *(end - 1 - i); }
};

Window last_of(const emel_sampling& s, int32_t n) {
  const bool is_all = n < 0 || static_cast<uint64_t>(n) >= s.n_history;
  return {s.history + s.n_history, is_all ? s.n_history : static_cast<uint64_t>(n)};
}

// Zeroes what tallies of these tokens and of these candidates will be looked at.
void clear_tallies(const Candidates& c, const Window& window, uint32_t* tallies) {
  for (uint64_t i = 0; i < window.n; ++i) tallies[window[i]] = 0;
  if (c.is_whole) return;
  for (uint64_t i = 0; i < c.n; ++i) tallies[c.ids[i]] = 0;
}

// Calls change(logit, tally) for each candidate whose tally is not 0, once.
template <typename Change>
void apply_tallies(Candidates& c, const Window& window, uint32_t* tallies, Change change) {
  if (!c.is_whole) {
    for (uint64_t i = 0; i < c.n; ++i) {
      if (tallies[c.ids[i]] != 0) c.logits[i] = change(c.logits[i], tallies[c.ids[i]]);
    }
    return;
  }
  for (uint64_t i = 0; i < window.n; ++i) {
    const int32_t token = window[i];
    if (tallies[token] != 0 && c.logits[token] != kGone) c.logits[token] = change(c.logits[token], tallies[token]);
    tallies[token] = 0;
  }
}

float power_of(float base, uint32_t exponent) {
  double result = 1.0;
  double square = static_cast<double>(base);
  for (; exponent != 0; exponent >>= 1) {
    if (exponent & 1) result *= square;
    square *= square;
  }
  return static_cast<float>(result);
}

// Which breakers begin with a token: [first, last).
struct BreakerRange {
  uint64_t first;
  uint64_t last;
};

BreakerRange breakers_of(const emel_sampling& s, int32_t head) {
  uint64_t low = 0;
  uint64_t high = s.n_breakers;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    if (s.breakers[middle].head < head) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  uint64_t last = low;
  while (last < s.n_breakers && s.breakers[last].head == head) ++last;
  return {low, last};
}

bool follows(const emel_sampling& s, const emel_breaker& breaker, const Window& window, uint64_t head) {
  if (breaker.n_tail > head) return false;
  for (uint64_t k = 0; k < breaker.n_tail; ++k) {
    if (s.breaker_tails[breaker.tail + k] != window[head - 1 - k]) return false;
  }
  return true;
}

// How many tokens came after the latest breaker: no repetition is longer.
uint64_t since_breaker(const emel_sampling& s, const Window& window) {
  for (uint64_t i = 0; i < window.n && s.n_breakers != 0; ++i) {
    const BreakerRange range = breakers_of(s, window[i]);
    int64_t longest = -1;
    for (uint64_t b = range.first; b < range.last; ++b) {
      const int64_t n_tail = s.breakers[b].n_tail;
      if (n_tail > longest && follows(s, s.breakers[b], window, i)) longest = n_tail;
    }
    if (longest >= 0) return i - static_cast<uint64_t>(longest);
  }
  return window.n;
}

bool is_breaker(const emel_sampling& s, int32_t token) {
  const BreakerRange range = breakers_of(s, token);
  for (uint64_t b = range.first; b < range.last; ++b) {
    if (s.breakers[b].n_tail == 0) return true;
  }
  return false;
}

// z[k]: how many of the latest tokens came already k tokens before, in the same order (the Z-algorithm; Gusfield,
// Algorithms on Strings, Trees and Sequences, 1997, section 1.4). z[0] is left alone.
void repetitions(const Window& window, uint32_t* z) {
  uint64_t left = 0;
  uint64_t right = 0;  // [left, right): the match that reaches furthest
  for (uint64_t k = 1; k < window.n; ++k) {
    uint64_t n = 0;
    if (k < right) n = z[k - left] < right - k ? z[k - left] : right - k;
    if (k + n >= right) {
      while (k + n < window.n && window[n] == window[k + n]) ++n;
      left = k;
      right = k + n;
    }
    z[k] = static_cast<uint32_t>(n);
  }
}

// The exponent beyond which the power leaves float32.
uint32_t largest_exponent(float base) {
  if (!(base > 1.000001f)) return UINT32_MAX;
  return static_cast<uint32_t>(88.7228391 / logarithm(static_cast<double>(base)));
}

}  // namespace

void penalize(Candidates& c, const emel_sampling& s) {
  if (s.repeat_penalty == 1.0f && s.presence_penalty == 0.0f && s.frequency_penalty == 0.0f) return;
  const Window window = last_of(s, s.repeat_last_n);
  clear_tallies(c, window, c.work);
  for (uint64_t i = 0; i < window.n; ++i) ++c.work[window[i]];
  apply_tallies(c, window, c.work, [&](float logit, uint32_t n) {
    const double repeat = static_cast<double>(s.repeat_penalty);
    const double scaled = logit <= 0.0f ? static_cast<double>(logit) * repeat : static_cast<double>(logit) / repeat;
    const double paid =
        static_cast<double>(n) * static_cast<double>(s.frequency_penalty) + static_cast<double>(s.presence_penalty);
    return finite(scaled - paid);
  });
}

void dry(Candidates& c, const emel_sampling& s, uint32_t* z) {
  if (s.dry_multiplier == 0.0f || s.dry_base < 1.0f) return;
  const Window window = last_of(s, s.dry_penalty_last_n);
  const uint64_t allowed = s.dry_allowed_length;
  if (window.n <= allowed) return;
  const uint64_t limit = since_breaker(s, window);
  if (limit < allowed) return;
  repetitions(window, z);
  uint32_t* const longest = c.work;  // of each token, plus 1
  clear_tallies(c, window, longest);
  for (uint64_t k = 1; k < window.n; ++k) {
    const uint64_t n = z[k] < limit ? z[k] : limit;
    uint32_t& tally = longest[window[k - 1]];
    if (n >= allowed && n + 1 > tally) tally = static_cast<uint32_t>(n + 1);
  }
  for (uint64_t k = 1; k < window.n; ++k) {
    uint32_t& tally = longest[window[k - 1]];
    if (tally != 0 && is_breaker(s, window[k - 1])) tally = 0;
  }
  const uint32_t most = largest_exponent(s.dry_base);
  apply_tallies(c, window, longest, [&](float logit, uint32_t tally) {
    const uint64_t beyond = tally - 1 - allowed;
    const uint32_t exponent = beyond < most ? static_cast<uint32_t>(beyond) : most;
    return finite(static_cast<double>(logit) - static_cast<double>(s.dry_multiplier) * power_of(s.dry_base, exponent));
  });
}

}  // namespace emel
