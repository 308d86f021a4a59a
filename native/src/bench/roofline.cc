// emel_roofline: every lane works through the same window of time at its own pace; the rates add up.
#include <string.h>
#include <time.h>

#include "core/error.h"
#include "core/prefetcher.h"
#include "plan/plan.h"
#include "pool/pool.h"

namespace emel {
namespace {

constexpr double kMaxSeconds = 60.0;
constexpr uint64_t kRoundsPerChunk = 512;  // tens of microseconds between looks at the clock
constexpr size_t kReadBlock = 512;  // of peak_read
constexpr size_t kReadChunk = size_t{1} << 20;
constexpr double kWarmupShare = 0.25;  // of the window: clocks settle, caches hold nothing of the fill

struct Peak {
  emel_pool* pool;
  const Kernels* kernels;
  uint32_t kind;
  uint8_t* memory;
  size_t n_bytes;
  double seconds;
  bool fetches_near;
  double rates[kMaxLanes];
};

double now_seconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// One lane's work: pieces of a size that the clock is read between.
struct Work {
  const Peak& peak;
  uint8_t* slice;
  size_t n_bytes;
  size_t at = 0;

  double next() {
    if (peak.kind == EMEL_ROOF_INT8) return static_cast<double>(peak.kernels->peak_dot(kRoundsPerChunk));
    if (peak.kind == EMEL_ROOF_FMA) return static_cast<double>(peak.kernels->peak_fma(kRoundsPerChunk));
    const size_t left = n_bytes - at;
    const size_t n = left < kReadChunk ? left : kReadChunk;
    peak.kernels->peak_read(slice + at, n, peak.fetches_near);
    at = n == left ? 0 : at + n;
    return static_cast<double>(n);
  }

  // Units a second over at least this long.
  double rate(double seconds) {
    const double begin = now_seconds();
    double done = 0;
    double elapsed = 0;
    while (elapsed < seconds) {
      done += next();
      elapsed = now_seconds() - begin;
    }
    return done / elapsed;
  }
};

void run_lane(void* context, const Lane& lane) {
  Peak& peak = *static_cast<Peak*>(context);
  const size_t n_blocks = peak.n_bytes / kReadBlock;
  const size_t begin = n_blocks * lane.index / lane.n_lanes * kReadBlock;
  const size_t end = n_blocks * (lane.index + 1) / lane.n_lanes * kReadBlock;
  // Written by the lane that reads it: pages that were never written are all the same page, which is in the cache.
  if (peak.kind == EMEL_ROOF_READ) memset(peak.memory + begin, 1, end - begin);
  Work work{peak, peak.memory + begin, end - begin};
  peak.pool->barrier();
  work.rate(kWarmupShare * peak.seconds);
  peak.pool->barrier();
  peak.rates[lane.index] = work.rate(peak.seconds);
}

emel_status check(const emel_pool& pool, const Kernels& kernels, int32_t isa, const Peak& peak) {
  if (!(peak.seconds > 0 && peak.seconds <= kMaxSeconds)) {
    return fail(EMEL_INVALID_ARGUMENT, "roofline: %g seconds; allowed are more than 0 and at most %g", peak.seconds,
                kMaxSeconds);
  }
  if (peak.kind >= EMEL_ROOF_COUNT) {
    return fail(EMEL_INVALID_ARGUMENT, "roofline: kind %u; allowed are 0 to %d", peak.kind, EMEL_ROOF_COUNT - 1);
  }
  if ((peak.kind == EMEL_ROOF_INT8 && kernels.peak_dot == nullptr) ||
      (peak.kind == EMEL_ROOF_FMA && kernels.peak_fma == nullptr)) {
    return fail(EMEL_UNSUPPORTED, "roofline: no multiply-add peak for route %s", emel_isa_name(isa));
  }
  if (peak.kind != EMEL_ROOF_READ) return EMEL_OK;
  const size_t least = kReadBlock * pool.n_lanes;
  if (peak.memory == nullptr || reinterpret_cast<uintptr_t>(peak.memory) % 64 != 0 || peak.n_bytes < least) {
    return fail(EMEL_INVALID_ARGUMENT, "roofline: reading needs at least %zu bytes of memory aligned to 64, got %zu",
                least, peak.memory == nullptr ? size_t{0} : peak.n_bytes);
  }
  return EMEL_OK;
}

}  // namespace
}  // namespace emel

emel_status emel_roofline(emel_pool* pool, int32_t isa, uint32_t kind, void* memory, uint64_t n_bytes, double seconds,
                          double* result) {
  if (pool == nullptr || result == nullptr) {
    return emel::fail(EMEL_INVALID_ARGUMENT, "roofline: pool or result is NULL");
  }
  const emel::Kernels* kernels = emel::kernels_of(isa);
  if (kernels == nullptr) {
    return emel::fail(EMEL_UNSUPPORTED, "roofline: route %d is not built or does not run here", isa);
  }
  emel::Peak peak{pool,
                  kernels,
                  kind,
                  static_cast<uint8_t*>(memory),
                  static_cast<size_t>(n_bytes),
                  seconds,
                  emel::prefetcher_falls_behind(),
                  {}};
  const emel_status status = emel::check(*pool, *kernels, isa, peak);
  if (status != EMEL_OK) return status;
  if (kind != EMEL_ROOF_READ) peak.n_bytes = 0;
  pool->run(emel::run_lane, &peak);
  double sum = 0;
  for (uint32_t lane = 0; lane < pool->n_lanes; ++lane) sum += peak.rates[lane];
  *result = sum;
  return EMEL_OK;
}
