#include "core/allocation.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>

#include "emel.h"

namespace emel {
namespace {

std::atomic<uint64_t> n_allocations{0};

}  // namespace

void* allocate(size_t n_bytes) {
  const size_t rounded = (n_bytes + 63) / 64 * 64;
  if (rounded < n_bytes) return nullptr;
  n_allocations.fetch_add(1, std::memory_order_relaxed);
  void* pointer = nullptr;
  if (posix_memalign(&pointer, 64, rounded == 0 ? 64 : rounded) != 0) return nullptr;
  memset(pointer, 0, rounded);
  return pointer;
}

void release(void* pointer) { free(pointer); }

}  // namespace emel

uint64_t emel_allocation_count(void) { return emel::n_allocations.load(std::memory_order_relaxed); }
