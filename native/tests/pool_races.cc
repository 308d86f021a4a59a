// Races for the lane pool, to be built with a sanitizer (tests/native/test_sanitizers.py).
//
//   pool_races ROUNDS SECONDS    each race ends after ROUNDS runs, or SECONDS of them
//
// What lanes exchange is plain memory: only the pool's own orders keep the accesses apart, and a missing one is a report
// of ThreadSanitizer. Every value is checked as well. Prints a line for each race with the runs it did.
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "emel.h"
#include "pool/pool.h"

namespace {

constexpr uint32_t kLanes = 8;
constexpr uint32_t kCallers = 4;
constexpr int kPhases = 16;
constexpr uint32_t kRoundsToSleep = 97;  // between pauses long enough for every worker to fall asleep
constexpr useconds_t kPauseMicroseconds = 600;

int n_rounds = 0;
double n_seconds = 0;

[[noreturn]] void fail(const char* what, uint64_t seen, uint64_t expected) {
  fprintf(stderr, "pool_races: %s: %llu, expected %llu\n", what, static_cast<unsigned long long>(seen),
          static_cast<unsigned long long>(expected));
  exit(1);
}

void expect(const char* what, uint64_t seen, uint64_t expected) {
  if (seen != expected) fail(what, seen, expected);
}

double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

emel_pool* create(uint32_t n_lanes) {
  emel_pool* pool = nullptr;
  if (emel_pool_create(n_lanes, &pool) != EMEL_OK) {
    fprintf(stderr, "pool_races: %s\n", emel_last_error());
    exit(1);
  }
  return pool;
}

// Rounds of a race until there were enough or their time is over.
class Rounds {
 public:
  bool next() {
    if (done_ >= n_rounds || now() > end_) return false;
    ++done_;
    return true;
  }
  uint32_t done() const { return static_cast<uint32_t>(done_); }

 private:
  int done_ = 0;
  double end_ = now() + n_seconds;
};

// What one run reads and writes: `input` is the caller's, a cell of `output` its lane's.
struct Exchange {
  uint64_t input = 0;
  uint64_t output[emel::kMaxLanes] = {};
};

void add_lane(void* context, const emel::Lane& lane) {
  auto* exchange = static_cast<Exchange*>(context);
  exchange->output[lane.index] = exchange->input + lane.index;
  lane.scratch[0] = static_cast<float>(lane.index);
}

void run_and_check(emel_pool* pool, uint32_t n_lanes, Exchange* exchange, uint64_t input) {
  exchange->input = input;
  pool->run(add_lane, exchange);
  for (uint32_t i = 0; i < n_lanes; ++i) {
    expect("a lane's result", exchange->output[i], input + i);
    exchange->output[i] = 0;  // a lane that is late would touch it
  }
}

// The context of every run dies with its round: a worker that touches the one before touches a dead frame.
void race_runs(const char* name, uint32_t n_lanes) {
  emel_pool* pool = create(n_lanes);
  Rounds rounds;
  while (rounds.next()) {
    Exchange exchange;
    run_and_check(pool, n_lanes, &exchange, rounds.done());
    if (rounds.done() % kRoundsToSleep == 0) usleep(kPauseMicroseconds);
  }
  emel_pool_destroy(pool);
  printf("%s %u\n", name, rounds.done());
}

// Lanes hand values on to their neighbour across barriers.
struct Ring {
  emel_pool* pool;
  uint64_t cell[kLanes];
};

void pass_on(void* context, const emel::Lane& lane) {
  auto* ring = static_cast<Ring*>(context);
  for (int phase = 0; phase < kPhases; ++phase) {
    const uint64_t left = ring->cell[(lane.index + 1) % lane.n_lanes];
    ring->pool->barrier();
    ring->cell[lane.index] = left + 1;
    ring->pool->barrier();
  }
}

void race_barriers(const char* name, uint32_t n_lanes) {
  emel_pool* pool = create(n_lanes);
  Rounds rounds;
  while (rounds.next()) {
    Ring ring{pool, {}};
    for (uint32_t i = 0; i < n_lanes; ++i) ring.cell[i] = 1000 * i;
    pool->run(pass_on, &ring);
    for (uint32_t i = 0; i < n_lanes; ++i) {
      expect("a cell of the ring", ring.cell[i], 1000 * ((i + kPhases) % n_lanes) + kPhases);
    }
  }
  emel_pool_destroy(pool);
  printf("%s %u\n", name, rounds.done());
}

// Callers share a pool and, inside of runs alone, a counter.
struct Caller {
  emel_pool* pool;
  uint64_t* total;  // of lane 0 of whichever run has its turn
  uint32_t done;
  pthread_t thread;
};

struct Count {
  Exchange exchange;
  uint64_t* total;
};

void count(void* context, const emel::Lane& lane) {
  auto* own = static_cast<Count*>(context);
  add_lane(&own->exchange, lane);
  if (lane.index == lane.n_lanes - 1) ++*own->total;
}

void* call(void* argument) {
  auto* caller = static_cast<Caller*>(argument);
  Rounds rounds;
  while (rounds.next() && rounds.done() <= static_cast<uint32_t>(n_rounds) / kCallers) {
    Count own{{}, caller->total};
    own.exchange.input = rounds.done();
    caller->pool->run(count, &own);
    for (uint32_t i = 0; i < kLanes; ++i) expect("a caller's result", own.exchange.output[i], rounds.done() + i);
    ++caller->done;
  }
  return nullptr;
}

void race_callers(const char* name) {
  emel_pool* pool = create(kLanes);
  uint64_t total = 0;
  Caller callers[kCallers];
  for (Caller& caller : callers) {
    caller = {pool, &total, 0, {}};
    if (pthread_create(&caller.thread, nullptr, call, &caller) != 0) fail("threads started", 0, kCallers);
  }
  uint64_t done = 0;
  for (Caller& caller : callers) {
    pthread_join(caller.thread, nullptr);
    done += caller.done;
  }
  expect("runs counted", total, done);
  emel_pool_destroy(pool);
  printf("%s %llu\n", name, static_cast<unsigned long long>(done));
}

// Pools that end while their workers start, spin or sleep.
void race_lives(const char* name) {
  Rounds rounds;
  while (rounds.next() && rounds.done() <= static_cast<uint32_t>(n_rounds) / 100) {
    const uint32_t n_lanes = 1 + rounds.done() % kLanes;
    emel_pool* pool = create(n_lanes);
    Exchange exchange;
    for (uint32_t i = 0; i < rounds.done() % 3; ++i) run_and_check(pool, n_lanes, &exchange, i);
    if (rounds.done() % 5 == 0) usleep(kPauseMicroseconds);
    emel_pool_destroy(pool);
  }
  printf("%s %u\n", name, rounds.done());
}

// Runs of ever other numbers of lanes, while those that are not used park, sleep or come back; ends with some parked.
void race_uses(const char* name) {
  emel_pool* pool = create(kLanes);
  Rounds rounds;
  while (rounds.next()) {
    const uint32_t n_used = 1 + rounds.done() * 5 % kLanes;
    expect("lanes used", emel_pool_use(pool, n_used), EMEL_OK);
    Exchange exchange;
    for (uint32_t i = 0; i <= rounds.done() % 3; ++i) run_and_check(pool, n_used, &exchange, rounds.done());
    for (uint32_t i = n_used; i < kLanes; ++i) expect("the result of a lane without work", exchange.output[i], 0);
    if (rounds.done() % kRoundsToSleep == 0) usleep(kPauseMicroseconds);
  }
  emel_pool_use(pool, 2);
  Exchange exchange;
  run_and_check(pool, 2, &exchange, 1);
  emel_pool_destroy(pool);
  printf("%s %u\n", name, rounds.done());
}

uint32_t n_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  const auto n = static_cast<uint32_t>(CPU_COUNT(&set));
  return n > kLanes ? kLanes : n;
}

}  // namespace

int main(int argc, char** argv) {
  n_rounds = argc == 3 ? atoi(argv[1]) : 0;
  n_seconds = argc == 3 ? atof(argv[2]) : 0;
  if (n_rounds < 1 || n_seconds <= 0) {
    fprintf(stderr, "usage: pool_races ROUNDS SECONDS\n");
    return 2;
  }
  setvbuf(stdout, nullptr, _IOLBF, 0);
  race_runs("runs_of_8_lanes", kLanes);
  race_runs("runs_of_a_lane_per_cpu", n_cpus());
  race_barriers("barriers_of_8_lanes", kLanes);
  race_barriers("barriers_of_a_lane_per_cpu", n_cpus());
  race_callers("callers");
  race_uses("uses");
  race_lives("lives");
  return 0;
}
