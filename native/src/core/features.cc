// Which routes this CPU and operating system can run (emel_isa_mask).
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "emel.h"

namespace {

#if defined(__x86_64__)
struct Registers {
  uint32_t eax, ebx, ecx, edx;
};

Registers cpuid(uint32_t leaf) {
  Registers r{};
  __cpuid_count(leaf, 0, r.eax, r.ebx, r.ecx, r.edx);
  return r;
}

constexpr uint32_t bit(int index) { return 1u << index; }
constexpr bool all(uint32_t word, uint32_t mask) { return (word & mask) == mask; }

// Register state the operating system saves: bits 1 and 2 are SSE and AVX, 5 to 7 AVX-512.
uint64_t saved_state() {
  if (!all(cpuid(1).ecx, bit(27))) return 0;  // OSXSAVE
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ __volatile__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

bool has_avx2() {
  if (cpuid(0).eax < 7 || (saved_state() & 0x6) != 0x6) return false;
  return all(cpuid(1).ecx, bit(12) | bit(29)) && all(cpuid(7).ebx, bit(5));  // FMA, F16C; AVX2
}

bool has_avx512_vnni() {
  if (!has_avx2() || (saved_state() & 0xe6) != 0xe6) return false;
  const Registers r = cpuid(7);
  return all(r.ebx, bit(16) | bit(17) | bit(30) | bit(31)) && all(r.ecx, bit(11));  // F, DQ, BW, VL; VNNI
}
#endif

constexpr const char* kNames[EMEL_ISA_COUNT] = {"scalar",      "avx2",     "avx_vnni",
                                                "avx512_vnni", "neon_dot", "neon_i8mm"};

}  // namespace

uint32_t emel_isa_mask(void) {
  uint32_t mask = 1u << EMEL_ISA_SCALAR;
#if defined(__x86_64__)
  if (has_avx2()) mask |= 1u << EMEL_ISA_AVX2;
  if (has_avx512_vnni()) mask |= 1u << EMEL_ISA_AVX512_VNNI;
#endif
  return mask;
}

const char* emel_isa_name(int32_t isa) {
  return isa >= 0 && isa < EMEL_ISA_COUNT ? kNames[isa] : nullptr;
}
