// Which routes this CPU and operating system can run (emel_isa_mask).
#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#include "emel.h"

namespace {

#if defined(__x86_64__)
struct Registers {
  uint32_t eax, ebx, ecx, edx;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf = 0) {
  Registers r{};
  __cpuid_count(leaf, subleaf, r.eax, r.ebx, r.ecx, r.edx);
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

// Leaf 7's subleaf 0 says in EAX which subleaf is its last.
bool has_avx_vnni() { return has_avx2() && cpuid(7).eax >= 1 && all(cpuid(7, 1).eax, bit(4)); }

bool has_avx512_vnni() {
  if (!has_avx2() || (saved_state() & 0xe6) != 0xe6) return false;
  const Registers r = cpuid(7);
  return all(r.ebx, bit(16) | bit(17) | bit(30) | bit(31)) && all(r.ecx, bit(11));  // F, DQ, BW, VL; VNNI
}

// Linux gives a process the state of tiles when it asks (Documentation/arch/x86/xstate.rst); for all its threads, and for
// good. It refuses where a thread has a signal stack too small for that state.
bool is_granted_tiles() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

bool has_avx512_amx() {
  constexpr uint64_t kTileState = 3u << 17;
  if (!has_avx512_vnni() || (saved_state() & kTileState) != kTileState) return false;
  return all(cpuid(7).edx, bit(24) | bit(25)) && is_granted_tiles();  // TILE, INT8
}
#elif defined(__aarch64__) && defined(__linux__)
// Bits of Linux's arch/arm64/include/uapi/asm/hwcap.h, which older system headers lack.
constexpr unsigned long kHwcapAsimdDp = 1ul << 20;
constexpr unsigned long kHwcap2I8mm = 1ul << 13;

bool has_neon_dot() { return (getauxval(AT_HWCAP) & kHwcapAsimdDp) != 0; }
bool has_neon_i8mm() { return has_neon_dot() && (getauxval(AT_HWCAP2) & kHwcap2I8mm) != 0; }
#elif defined(__aarch64__) && defined(__APPLE__)
bool has_feature(const char* name) {
  int value = 0;
  size_t size = sizeof value;
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value == 1;
}

bool has_neon_dot() { return has_feature("hw.optional.arm.FEAT_DotProd"); }
bool has_neon_i8mm() { return has_neon_dot() && has_feature("hw.optional.arm.FEAT_I8MM"); }
#elif defined(__aarch64__)
bool has_neon_dot() { return false; }
bool has_neon_i8mm() { return false; }
#endif

constexpr const char* kNames[EMEL_ISA_COUNT] = {"scalar",     "avx2",     "avx_vnni", "avx512_vnni",
                                                "avx512_amx", "neon_dot", "neon_i8mm"};

}  // namespace

uint32_t emel_isa_mask(void) {
  uint32_t mask = 1u << EMEL_ISA_SCALAR;
#if defined(__x86_64__)
  if (has_avx2()) mask |= 1u << EMEL_ISA_AVX2;
  if (has_avx_vnni()) mask |= 1u << EMEL_ISA_AVX_VNNI;
  if (has_avx512_vnni()) mask |= 1u << EMEL_ISA_AVX512_VNNI;
  if (has_avx512_amx()) mask |= 1u << EMEL_ISA_AVX512_AMX;
#elif defined(__aarch64__)
  if (has_neon_dot()) mask |= 1u << EMEL_ISA_NEON_DOT;
  if (has_neon_i8mm()) mask |= 1u << EMEL_ISA_NEON_I8MM;
#endif
  return mask;
}

const char* emel_isa_name(int32_t isa) { return isa >= 0 && isa < EMEL_ISA_COUNT ? kNames[isa] : nullptr; }
