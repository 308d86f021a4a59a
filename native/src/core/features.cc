// Which routes this CPU and operating system can run (emel_isa_mask).
#include "emel.h"

namespace {

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
bool has_avx512_vnni() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}
#endif

constexpr const char* kNames[EMEL_ISA_COUNT] = {"scalar",      "avx2",     "avx_vnni",
                                                "avx512_vnni", "neon_dot", "neon_i8mm"};

}  // namespace

uint32_t emel_isa_mask(void) {
  uint32_t mask = 1u << EMEL_ISA_SCALAR;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (has_avx2()) mask |= 1u << EMEL_ISA_AVX2;
  if (has_avx512_vnni()) mask |= 1u << EMEL_ISA_AVX512_VNNI;
#endif
  return mask;
}

const char* emel_isa_name(int32_t isa) {
  return isa >= 0 && isa < EMEL_ISA_COUNT ? kNames[isa] : nullptr;
}
