// What tokens that were already there do to the logits.
#pragma once

#include "emel.h"
#include "sample/candidates.h"

namespace emel {

// Repeat, presence and frequency penalties over the last tokens (llama.cpp's definition).
void penalize(Candidates& c, const emel_sampling& s);
// DRY: what would continue a repetition pays by its length; z holds s.n_history values. Definition:
// https://github.com/oobabooga/text-generation-webui/pull/5677, with llama.cpp's breakers.
void dry(Candidates& c, const emel_sampling& s, uint32_t* z);

// A logit after a change: it stays finite, so that what is not gone can be told from what is.
inline float finite(double logit) {
  const double most = static_cast<double>(kLargest);
  return static_cast<float>(logit > most ? most : logit < -most ? -most : logit);
}

}  // namespace emel
