// Inverse frequencies of rotary position embeddings, in double by functions of our own.
#include <stddef.h>

#include "core/error.h"
#include "core/float_environment.h"
#include "core/math.h"
#include "emel.h"

namespace emel {
namespace {

constexpr double kTwoPi = 6.28318530717958647693;
constexpr double kLargest = 1e300;

void inverse_powers(double log_base, uint32_t n_rot, double* inv_freq) {
  for (uint32_t i = 0; i < n_rot / 2; ++i) {
    inv_freq[i] = exponential(-(2.0 * static_cast<double>(i) / static_cast<double>(n_rot)) * log_base);
  }
}

double rounded_down(double x) {
  const double whole = static_cast<double>(static_cast<int64_t>(x));
  return whole > x ? whole - 1.0 : whole;
}

double clamped(double x, double least, double most) { return x < least ? least : x > most ? most : x; }

// The pair of dimensions that turns n_turns times within the original context.
double pair_of(const emel_yarn& y, double n_turns, double log_base) {
  const double turns = logarithm(y.original_context / (n_turns * kTwoPi));
  return clamped(static_cast<double>(y.n_rot) * turns / (2.0 * log_base), -1e6, 1e6);
}

bool is_sound(const emel_yarn& y) {
  return y.n_rot != 0 && y.n_rot % 2 == 0 && y.base > 1.0 && y.base <= kLargest && y.factor >= 1.0 &&
         y.factor <= kLargest && y.original_context >= 1.0 && y.original_context <= kLargest && y.beta_slow >= 1e-6 &&
         y.beta_fast > y.beta_slow && y.beta_fast <= 1e6;
}

}  // namespace
}  // namespace emel

emel_status emel_rope_frequencies(double base, uint32_t n_rot, double* inv_freq) {
  if (inv_freq == nullptr || n_rot == 0 || n_rot % 2 != 0 || !(base >= 1.0) || base > 1e300) {
    return emel::fail(EMEL_INVALID_ARGUMENT, "rope: base %g (at least 1) and n_rot %u (even, at least 2)", base, n_rot);
  }
  const emel::FloatEnvironment environment;
  const double log_base = emel::logarithm(base);
  emel::inverse_powers(log_base, n_rot, inv_freq);
  return EMEL_OK;
}

emel_status emel_rope_yarn(const emel_yarn* yarn, double* inv_freq, double* magnitude) {
  if (yarn == nullptr || inv_freq == nullptr) return emel::fail(EMEL_INVALID_ARGUMENT, "yarn: an argument is NULL");
  const emel_yarn& y = *yarn;
  if (!emel::is_sound(y)) {
    return emel::fail(EMEL_INVALID_ARGUMENT,
                      "yarn: base %g (above 1), factor %g and original context %g (at least 1), turns %g (at least "
                      "1e-6) to %g (more, at most 1e6), n_rot %u (even, at least 2)",
                      y.base, y.factor, y.original_context, y.beta_slow, y.beta_fast, y.n_rot);
  }
  const emel::FloatEnvironment environment;
  const double log_base = emel::logarithm(y.base);
  double low = emel::pair_of(y, y.beta_fast, log_base);
  double high = emel::pair_of(y, y.beta_slow, log_base);
  if (y.keep_fractions == 0) {
    low = emel::rounded_down(low);
    high = -emel::rounded_down(-high);
  }
  const double most = static_cast<double>(y.n_rot - 1);
  low = emel::clamped(low, 0.0, most);
  high = emel::clamped(high, 0.0, most);
  const double width = high - low < 0.001 ? 0.001 : high - low;
  emel::inverse_powers(log_base, y.n_rot, inv_freq);
  for (uint32_t i = 0; i < y.n_rot / 2; ++i) {
    const double stretched = emel::clamped((static_cast<double>(i) - low) / width, 0.0, 1.0);
    inv_freq[i] = inv_freq[i] * (1.0 - stretched) + inv_freq[i] / y.factor * stretched;
  }
  if (magnitude != nullptr) *magnitude = 0.1 * emel::logarithm(y.factor) + 1.0;
  return EMEL_OK;
}

emel_status emel_rope_long_magnitude(double factor, double original_context, double* magnitude) {
  if (magnitude == nullptr || !(factor > 0.0) || factor > emel::kLargest || !(original_context > 1.0) ||
      original_context > emel::kLargest) {
    return emel::fail(EMEL_INVALID_ARGUMENT, "rope: factor %g (above 0) and original context %g (above 1)", factor,
                      original_context);
  }
  const emel::FloatEnvironment environment;
  *magnitude = factor <= 1.0 ? 1.0 : __builtin_sqrt(1.0 + emel::logarithm(factor) / emel::logarithm(original_context));
  return EMEL_OK;
}
