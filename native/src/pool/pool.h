// A fork/join pool of lanes. The caller is lane 0; workers spin for a bounded time after a run, then sleep.
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include <atomic>

namespace emel {

inline constexpr uint32_t kMaxLanes = 256;
inline constexpr size_t kLaneScratchFloats = 256 * 1024;

struct Lane {
  uint32_t index;
  uint32_t n_lanes;  // that the run uses
  float* scratch;  // kLaneScratchFloats, of this lane alone
};

using LaneTask = void (*)(void* context, const Lane& lane);

}  // namespace emel

// One run at a time: run() holds the mutex. `start` is the only word workers watch: the number of the run in its upper
// half, the lanes it uses in the lower one, so that a worker that looks late cannot take one run's lanes for another's.
// Its change publishes the task, and the last decrement of n_running is a worker's last touch of a run. Workers that no
// run uses are parked.
struct emel_pool {
  void run(emel::LaneTask task, void* context);
  // Every lane of the current run calls this the same number of times; spins, then yields the CPU.
  void barrier();

  uint32_t n_lanes = 1;
  uint32_t n_used = 1;  // of them; written under run_mutex and sleep_mutex
  int spins = 0;  // of a waiting lane before it yields its CPU
  emel::LaneTask task = nullptr;
  void* context = nullptr;
  float* scratch = nullptr;  // (n_lanes, kLaneScratchFloats)

  alignas(64) std::atomic<uint64_t> start{0};
  std::atomic<uint32_t> n_sleeping{0};
  std::atomic<bool> stopping{false};
  alignas(64) std::atomic<uint32_t> n_running{0};
  alignas(64) std::atomic<uint32_t> barrier_count{0};
  alignas(64) std::atomic<uint32_t> barrier_epoch{0};
  alignas(64) std::atomic<uint64_t> waited{0};  // nanoseconds, of waits in which a lane yielded

  pthread_mutex_t run_mutex;
  pthread_mutex_t sleep_mutex;
  pthread_cond_t wake;
  pthread_cond_t unpark;
  pthread_t* threads = nullptr;
  uint32_t n_threads = 0;
};
