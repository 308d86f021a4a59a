// Rounding to nearest, no flushing of subnormals, all exceptions masked, from construction to destruction; another
// library in the process may have set it otherwise for its threads.
#pragma once

#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace emel {

class FloatEnvironment {
 public:
#if defined(__x86_64__)
  FloatEnvironment() : saved_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
  ~FloatEnvironment() { _mm_setcsr(saved_); }
#elif defined(__aarch64__)
  FloatEnvironment() {
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(saved_)::"memory");
    __asm__ __volatile__("msr fpcr, %0" ::"r"(uint64_t{0}) : "memory");
  }
  ~FloatEnvironment() { __asm__ __volatile__("msr fpcr, %0" ::"r"(saved_) : "memory"); }
#endif
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  uint32_t saved_;
#elif defined(__aarch64__)
  uint64_t saved_;
#endif
};

}  // namespace emel
