// The operations at the ends of a plan: rows of embeddings, and rows or sequences that are wanted.
#pragma once

#include "plan/op_run.h"

namespace emel {

void run_embed(const OpRun& r);
void run_gather(const OpRun& r);
void run_mean(const OpRun& r);

}  // namespace emel
