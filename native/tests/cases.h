// What digest cases share: seeded values, aligned memory, and a line for each case.
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emel.h"
#include "kernels/layout.h"
#include "kernels/table.h"

namespace emel_cases {

struct Random {
  uint64_t state;
  uint32_t next() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state >> 33);
  }
  // In [-1, 1), a multiple of 2^-16: exact in every format on the way.
  float value() { return static_cast<float>(static_cast<int32_t>(next() % 131072) - 65536) / 65536.0f; }
};

struct Bytes {
  uint8_t* data;
  size_t size;
  explicit Bytes(size_t n) : data(nullptr), size((n + 63) / 64 * 64) {
    void* memory = nullptr;
    if (posix_memalign(&memory, 64, size == 0 ? 64 : size) != 0) abort();
    data = static_cast<uint8_t*>(memory);
    memset(data, 0, size);
  }
  ~Bytes() { free(data); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  float* floats() { return reinterpret_cast<float*>(data); }
  int32_t* ints() { return reinterpret_cast<int32_t*>(data); }
};

inline uint64_t fnv1a(const void* data, size_t n, uint64_t hash = 14695981039346656037u) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  for (size_t i = 0; i < n; ++i) hash = (hash ^ bytes[i]) * 1099511628211u;
  return hash;
}

// Of n_rows records, with their planes apart whatever the route.
inline uint64_t records_digest(const emel::Kernels& kernels, const uint8_t* records,
                               const emel::QuantizedLayout& layout, size_t n_rows, uint64_t hash = fnv1a(nullptr, 0)) {
  const size_t n_bytes = n_rows * layout.bytes();
  if (!kernels.joins_planes || layout.n_planes == 1) return fnv1a(records, n_bytes, hash);
  Bytes apart(n_bytes);
  memcpy(apart.data, records, n_bytes);
  for (size_t row = 0; row < n_rows; ++row) {
    auto* planes = reinterpret_cast<int8_t*>(apart.data + row * layout.bytes());
    for (size_t i = 0; i < layout.n_blocks * emel::kBlock; ++i) {
      constexpr size_t kPlaces[4] = {0, 2, 1, 3};
      int16_t q;
      memcpy(&q, records + row * layout.bytes() + 2 * (i / 4 * 4 + kPlaces[i % 4]), sizeof q);
      const int high = static_cast<int>(lrint(q / static_cast<double>(emel::kRadix)));
      planes[i] = static_cast<int8_t>(high);
      planes[layout.low_at() + i] = static_cast<int8_t>(q - emel::kRadix * high);
    }
  }
  return fnv1a(apart.data, n_bytes, hash);
}

inline void require(emel_status status) {
  if (status == EMEL_OK) return;
  fprintf(stderr, "emel_digest: %s\n", emel_last_error());
  exit(1);
}

inline void report(const char* name, size_t a, size_t b, size_t c, uint64_t digest) {
  printf("%s %zu %zu %zu %016llx\n", name, a, b, c, static_cast<unsigned long long>(digest));
}

// The operations of plans beyond what digest.cc itself covers, run by these kernels.
void digest_operations(const emel::Kernels& kernels, emel_pool* pool);
void digest_sampling();

}  // namespace emel_cases
