#include "pool/pool.h"

#include <sched.h>
#include <time.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <new>

#include "core/allocation.h"
#include "core/error.h"
#include "core/float_environment.h"

namespace {

// A worker that finds no new run within this time sleeps: long enough to bridge the Python side of a decode step of
// sixteen sequences (half a millisecond, its memory gone from the caches each time), short enough that an idle model
// costs nothing.
constexpr int64_t kSpinNanoseconds = 1000 * 1000;
// Spins before a waiting lane offers its CPU to one that may have none; where lanes outnumber CPUs, one surely has none.
constexpr int kSpins = 4096;
constexpr int kSpinsWhenCrowded = 16;
constexpr int kSpinsPerClockRead = 64;

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

int64_t now_nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

void run_lane(emel_pool* pool, uint32_t index) {
  const emel::FloatEnvironment environment;
  const emel::Lane lane{index, pool->n_used, pool->scratch + index * emel::kLaneScratchFloats};
  pool->task(pool->context, lane);
}

uint32_t n_cpus() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<uint32_t>(CPU_COUNT(&set));
#endif
  return UINT32_MAX;
}

// Waits until done() holds: spins, then yields the CPU between looks, and counts how long that took.
template <class Done>
void wait_until(emel_pool& pool, Done done) {
  for (int spins = 0; spins < pool.spins; ++spins) {
    if (done()) return;
    relax();
  }
  if (done()) return;
  const int64_t begin = now_nanoseconds();
  while (!done()) sched_yield();
  pool.waited.fetch_add(static_cast<uint64_t>(now_nanoseconds() - begin), std::memory_order_relaxed);
}

uint32_t lanes_of(uint64_t start) { return static_cast<uint32_t>(start); }

// Waits for a start other than seen: spins, then sleeps.
uint64_t next_start(emel_pool* pool, uint64_t seen) {
  const int64_t deadline = now_nanoseconds() + kSpinNanoseconds;
  do {
    for (int i = 0; i < kSpinsPerClockRead; ++i) {
      const uint64_t start = pool->start.load(std::memory_order_acquire);
      if (start != seen) return start;
      relax();
    }
    if (pool->spins < kSpins) sched_yield();
  } while (now_nanoseconds() < deadline);
  pthread_mutex_lock(&pool->sleep_mutex);
  // Counted before the start is read again: whoever changes it either sees the sleeper or is seen by it.
  pool->n_sleeping.fetch_add(1, std::memory_order_seq_cst);
  uint64_t start = pool->start.load(std::memory_order_seq_cst);
  while (start == seen) {
    pthread_cond_wait(&pool->wake, &pool->sleep_mutex);
    start = pool->start.load(std::memory_order_seq_cst);
  }
  pool->n_sleeping.fetch_sub(1, std::memory_order_seq_cst);
  pthread_mutex_unlock(&pool->sleep_mutex);
  return start;
}

// Sleeps while runs use fewer lanes than this one needs: not counted among the sleepers, so no run wakes it.
void park(emel_pool* pool, uint32_t index) {
  pthread_mutex_lock(&pool->sleep_mutex);
  while (index >= pool->n_used && !pool->stopping.load(std::memory_order_acquire)) {
    pthread_cond_wait(&pool->unpark, &pool->sleep_mutex);
  }
  pthread_mutex_unlock(&pool->sleep_mutex);
}

void publish(emel_pool* pool) {
  const uint64_t number = (pool->start.load(std::memory_order_relaxed) >> 32) + 1;
  pool->start.store(number << 32 | pool->n_used, std::memory_order_seq_cst);
  if (pool->n_sleeping.load(std::memory_order_seq_cst) == 0) return;
  pthread_mutex_lock(&pool->sleep_mutex);
  pthread_cond_broadcast(&pool->wake);
  pthread_mutex_unlock(&pool->sleep_mutex);
}

struct WorkerStart {
  emel_pool* pool;
  uint32_t index;
};

void* work(void* argument) {
  const WorkerStart start = *static_cast<WorkerStart*>(argument);
  emel::release(argument);
  uint64_t seen = 0;
  for (;;) {
    seen = next_start(start.pool, seen);
    if (start.pool->stopping.load(std::memory_order_acquire)) return nullptr;
    if (start.index >= lanes_of(seen)) {
      park(start.pool, start.index);
      continue;
    }
    run_lane(start.pool, start.index);
    start.pool->n_running.fetch_sub(1, std::memory_order_acq_rel);
  }
}

bool start_worker(emel_pool* pool, uint32_t index) {
  auto* start = emel::allocate_array<WorkerStart>(1);
  if (start == nullptr) return false;
  *start = {pool, index};
  if (pthread_create(&pool->threads[pool->n_threads], nullptr, work, start) != 0) {
    emel::release(start);
    return false;
  }
  ++pool->n_threads;
  return true;
}

}  // namespace

void emel_pool::run(emel::LaneTask new_task, void* new_context) {
  pthread_mutex_lock(&run_mutex);
  task = new_task;
  context = new_context;
  n_running.store(n_used - 1, std::memory_order_relaxed);
  if (n_used > 1) publish(this);
  run_lane(this, 0);
  wait_until(*this, [this] { return n_running.load(std::memory_order_acquire) == 0; });
  pthread_mutex_unlock(&run_mutex);
}

void emel_pool::barrier() {
  if (n_used == 1) return;
  const uint32_t seen = barrier_epoch.load(std::memory_order_relaxed);
  if (barrier_count.fetch_add(1, std::memory_order_acq_rel) + 1 == n_used) {
    barrier_count.store(0, std::memory_order_relaxed);
    barrier_epoch.store(seen + 1, std::memory_order_release);
    return;
  }
  wait_until(*this, [this, seen] { return barrier_epoch.load(std::memory_order_acquire) != seen; });
}

emel_status emel_pool_create(uint32_t n_lanes, emel_pool** out) {
  if (out == nullptr) return emel::fail(EMEL_INVALID_ARGUMENT, "pool: out is NULL");
  *out = nullptr;
  if (n_lanes == 0 || n_lanes > emel::kMaxLanes) {
    return emel::fail(EMEL_INVALID_ARGUMENT, "pool: %u lanes; allowed are 1 to %u", n_lanes, emel::kMaxLanes);
  }
  void* memory = emel::allocate(sizeof(emel_pool));
  if (memory == nullptr) return emel::fail(EMEL_OUT_OF_MEMORY, "pool: out of memory");
  auto* pool = new (memory) emel_pool;
  pool->n_lanes = pool->n_used = n_lanes;
  pool->spins = n_lanes > n_cpus() ? kSpinsWhenCrowded : kSpins;
  pthread_mutex_init(&pool->run_mutex, nullptr);
  pthread_mutex_init(&pool->sleep_mutex, nullptr);
  pthread_cond_init(&pool->wake, nullptr);
  pthread_cond_init(&pool->unpark, nullptr);
  pool->scratch = emel::allocate_array<float>(n_lanes * emel::kLaneScratchFloats);
  pool->threads = emel::allocate_array<pthread_t>(n_lanes);
  bool started = pool->scratch != nullptr && pool->threads != nullptr;
  for (uint32_t index = 1; started && index < n_lanes; ++index) started = start_worker(pool, index);
  if (!started) {
    emel_pool_destroy(pool);
    return emel::fail(EMEL_OUT_OF_MEMORY, "pool: cannot start %u lanes", n_lanes);
  }
  *out = pool;
  return EMEL_OK;
}

void emel_pool_destroy(emel_pool* pool) {
  if (pool == nullptr) return;
  pool->stopping.store(true, std::memory_order_release);
  publish(pool);
  pthread_mutex_lock(&pool->sleep_mutex);
  pthread_cond_broadcast(&pool->unpark);
  pthread_mutex_unlock(&pool->sleep_mutex);
  for (uint32_t i = 0; i < pool->n_threads; ++i) pthread_join(pool->threads[i], nullptr);
  pthread_cond_destroy(&pool->unpark);
  pthread_cond_destroy(&pool->wake);
  pthread_mutex_destroy(&pool->sleep_mutex);
  pthread_mutex_destroy(&pool->run_mutex);
  emel::release(pool->threads);
  emel::release(pool->scratch);
  emel::release(pool);
}

uint32_t emel_pool_n_lanes(const emel_pool* pool) { return pool == nullptr ? 0 : pool->n_lanes; }

emel_status emel_pool_use(emel_pool* pool, uint32_t n_lanes) {
  if (pool == nullptr) return emel::fail(EMEL_INVALID_ARGUMENT, "pool: it is NULL");
  if (n_lanes == 0 || n_lanes > pool->n_lanes) {
    return emel::fail(EMEL_INVALID_ARGUMENT, "pool: %u lanes of %u; allowed are 1 to all of them", n_lanes,
                      pool->n_lanes);
  }
  pthread_mutex_lock(&pool->run_mutex);
  pthread_mutex_lock(&pool->sleep_mutex);
  pool->n_used = n_lanes;
  pthread_cond_broadcast(&pool->unpark);
  pthread_mutex_unlock(&pool->sleep_mutex);
  pthread_mutex_unlock(&pool->run_mutex);
  return EMEL_OK;
}

uint64_t emel_pool_waited(const emel_pool* pool) {
  return pool == nullptr ? 0 : pool->waited.load(std::memory_order_relaxed);
}
