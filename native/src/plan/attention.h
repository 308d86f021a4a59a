// The operations on the KV cache, and how a batch is cut for them.
#pragma once

#include <atomic>

#include "plan/op_run.h"

namespace emel {

// Cuts the run's batch into tiles of queries; decides whether long contexts are split over the lanes.
void cut_tiles(Run* run);
void run_rope_store(const OpRun& r);
void run_attention(const OpRun& r, std::atomic<uint32_t>& next);

}  // namespace emel
