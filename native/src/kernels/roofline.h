// The three peaks of a route: int8 multiply-adds, float32 multiply-adds, reading. Nothing here is a result: no bits of
// it enter the contract, so a lanes header may leave the first two out (no EMEL_HAS_PEAKS).
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace emel {
namespace {

#if defined(EMEL_HAS_PEAKS)
// kPeakChains independent chains of the widest int8 multiply-add, all in registers; returns the multiply-adds.
[[maybe_unused]] uint64_t peak_dot(uint64_t n_rounds) {
  constexpr int kStepsPerRound = 8;
  uint8_t bytes[64 * (kPeakChains + 2)];
  for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = static_cast<uint8_t>(i % 7);  // no two chains alike
  U8 w = u_load(bytes);
  const U8 a = u_load(bytes + 64);
  I32 sums[kPeakChains];
#pragma unroll
  for (int c = 0; c < kPeakChains; ++c) memcpy(&sums[c], bytes + 64 * (c + 2), sizeof sums[c]);
  for (uint64_t round = 0; round < n_rounds; ++round) {
#pragma unroll
    for (int step = 0; step < kStepsPerRound; ++step) {
#pragma unroll
      for (int c = 0; c < kPeakChains; ++c) sums[c] = peak_dot_step(sums[c], w, a);
    }
  }
  __asm__ volatile("" : : "r"(&sums) : "memory");
  return n_rounds * kStepsPerRound * kPeakChains * 64;
}

// The same for fused multiply-adds of float32.
[[maybe_unused]] uint64_t peak_fma(uint64_t n_rounds) {
  constexpr int kStepsPerRound = 8;
  F32 sums[kPeakChains];
#pragma unroll
  for (int c = 0; c < kPeakChains; ++c) sums[c] = f_set1(static_cast<float>(c));
  const F32 half = f_set1(0.5f);
  const F32 one = f_set1(1.0f);  // sums tend to 2: no overflow, no subnormal
  for (uint64_t round = 0; round < n_rounds; ++round) {
#pragma unroll
    for (int step = 0; step < kStepsPerRound; ++step) {
#pragma unroll
      for (int c = 0; c < kPeakChains; ++c) sums[c] = f_fma(sums[c], half, one);
    }
  }
  __asm__ volatile("" : : "r"(&sums) : "memory");
  return n_rounds * kStepsPerRound * kPeakChains * 16;
}
#endif

// Reads n_bytes, a multiple of 512, from front to back in loads of 64 bytes, fetched ahead where that reads faster.
[[maybe_unused]] void peak_read(const uint8_t* bytes, size_t n_bytes, bool fetches_near) {
  U8 seen[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) seen[i] = u_load(bytes);
  for (size_t at = 0; at < n_bytes; at += 512) {
    if (fetches_near) {
      fetch_near(bytes + at + kFetchNear, 512);
      fetch_far(bytes + at + kFetchAhead, 512);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) seen[i] = u_or(seen[i], u_load(bytes + at + 64 * i));
  }
  __asm__ volatile("" : : "r"(&seen) : "memory");
}

}  // namespace
}  // namespace emel
