// The operations of a mixture of experts on one lane (emel.h).
#pragma once

#include "plan/op_run.h"

namespace emel {

void run_top_k(const OpRun& r);
void run_expert_rows(const OpRun& r);
void run_expert_matmul(const OpRun& r);
void run_expert_sum(const OpRun& r);

}  // namespace emel
