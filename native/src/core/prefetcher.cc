#include "core/prefetcher.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace emel {

bool prefetcher_falls_behind() {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  // The vendor's name is in EBX, EDX and ECX: its first letters tell Intel from all others.
  return __get_cpuid(0, &eax, &ebx, &ecx, &edx) != 0 && ebx == signature_INTEL_ebx;
#else
  return false;
#endif
}

}  // namespace emel
