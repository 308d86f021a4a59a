// The steps of the chain that narrow the candidates or scale their logits. None leaves no candidate.
#pragma once

#include "emel.h"
#include "sample/candidates.h"

namespace emel {

void top_n_sigma(Candidates& c, float n);
void typical_p(Candidates& c, float p, uint64_t min_keep);
void top_p(Candidates& c, float p, uint64_t min_keep);
void min_p(Candidates& c, float p, uint64_t min_keep);
// `chance` in [0, 1): the step is taken when it is not above s.xtc_probability.
void xtc(Candidates& c, const emel_sampling& s, double chance);
void temperature(Candidates& c, double value);
void dynamic_temperature(Candidates& c, const emel_sampling& s);
void mirostat_1(Candidates& c, float mu, uint64_t n_vocab);
void mirostat_2(Candidates& c, float mu);

}  // namespace emel
