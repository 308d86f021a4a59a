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
  uint32_t n_lanes;
  float* scratch;  // kLaneScratchFloats, of this lane alone
};

using LaneTask = void (*)(void* context, const Lane& lane);

}  // namespace emel

// One run at a time: run() holds the mutex. The epoch is the only word workers watch; its increment publishes the
// task, and the last decrement of n_running is a worker's last touch of a run.
struct emel_pool {
  void run(emel::LaneTask task, void* context);
  // Every lane of the current run calls this the same number of times; spins, then yields the CPU.
  void barrier();

  uint32_t n_lanes = 1;
  int spins = 0;  // of a waiting lane before it yields its CPU
  emel::LaneTask task = nullptr;
  void* context = nullptr;
  float* scratch = nullptr;  // (n_lanes, kLaneScratchFloats)

  alignas(64) std::atomic<uint32_t> epoch{0};
  std::atomic<uint32_t> n_sleeping{0};
  std::atomic<bool> stopping{false};
  alignas(64) std::atomic<uint32_t> n_running{0};
  alignas(64) std::atomic<uint32_t> barrier_count{0};
  alignas(64) std::atomic<uint32_t> barrier_epoch{0};

  pthread_mutex_t run_mutex;
  pthread_mutex_t sleep_mutex;
  pthread_cond_t wake;
  pthread_t* threads = nullptr;
  uint32_t n_threads = 0;
};
