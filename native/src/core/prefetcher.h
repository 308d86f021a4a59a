// What this CPU's own prefetcher leaves to be done.
#pragma once

namespace emel {

// Whether reading from end to end is faster when every line is asked for twice, from far and from near: on a CPU by
// Intel, measured on Emerald Rapids, and not on one by AMD, measured on Zen 4
// (docs/decisions/0011-weights-fetched-far-ahead.md). CPUs never measured read as AMD's do.
bool prefetcher_falls_behind();

}  // namespace emel
