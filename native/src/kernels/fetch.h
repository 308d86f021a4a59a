// Weights fetched ahead of their use. No number depends on it.
//
// A matrix is read once, from end to end, and what lies kFetchAhead bytes further on is fetched on the way, into the
// second-level cache. The CPU's own prefetcher stops at the borders of pages and loses its thread where records are too
// large to stay in the first-level cache beside the weights; for a token or two a good one does better alone over bytes,
// and over nibbles while records are small (kFetchesAll: on the CPUs of this route it does not). Where it falls behind
// (core/prefetcher.h), everything is asked for, and once more from near by, into the first-level cache; that first, or
// it waits behind requests that memory answers. Every line is asked for: gaps are worse than nothing. At the end of a
// slice, what follows is asked for in vain. Measured: docs/decisions/0011-weights-fetched-far-ahead.md.
#pragma once

namespace emel {
namespace {

constexpr size_t kFetchAhead = 16 * 1024;
constexpr size_t kFetchNear = 2 * 1024;
constexpr size_t kSmallRecord = 6 * 1024;  // bytes: 2,340 columns in two planes

constexpr bool fetches_ahead(Quants quants, int n_tokens, size_t record_bytes) {
  if (kFetchesAll || n_tokens > 2) return true;
  if (quants == Quants::kBytes) return false;
  if (quants == Quants::kNibbles || quants == Quants::kTable) return record_bytes > kSmallRecord;
  return true;
}

// What a pass of a token tile over a group fetches. Where several tiles pass over the same groups, each fetches a share
// of the groups that come next: memory is busy all the time, not for the first of them alone.
struct Fetch {
  bool ahead;  // what lies kFetchAhead further on
  bool near;
  size_t next;  // bytes from a group to the one of the next groups; 0: nothing of them
  size_t share;  // of their blocks, one of this many
  size_t first;  // from this one on
};

// No load of weights comes before a request: it would wait for what is asked for after it.
EMEL_INLINE void keep_requests_first() { __asm__ volatile("" : : : "memory"); }

EMEL_INLINE void fetch_far(const uint8_t* from, size_t n_bytes) {
#pragma unroll
  for (size_t at = 0; at < n_bytes; at += kCacheLine) __builtin_prefetch(from + at, 0, 2);
  keep_requests_first();
}

EMEL_INLINE void fetch_near(const uint8_t* from, size_t n_bytes) {
#pragma unroll
  for (size_t at = 0; at < n_bytes; at += kCacheLine) __builtin_prefetch(from + at, 0, 3);
  keep_requests_first();
}

}  // namespace
}  // namespace emel
