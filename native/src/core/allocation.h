// The only door to the heap: everything native allocates is counted (emel_allocation_count).
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace emel {

// 64-byte aligned, zeroed; nullptr when memory is out.
void* allocate(size_t n_bytes);
void release(void* pointer);

template <typename T>
T* allocate_array(size_t n) {
  if (n != 0 && n > SIZE_MAX / sizeof(T)) return nullptr;
  return static_cast<T*>(allocate(n * sizeof(T)));
}

}  // namespace emel
