// AVX2 + FMA + F16C + AVX-VNNI.
#include "lanes/avx_vnni.h"
// lanes first
#include "kernels/unit.h"

#if defined(EMEL_EVEX_VNNI)  // only in the digest program
namespace emel {
extern const Kernels kKernelsAvxVnniEvex;
}
EMEL_KERNEL_TABLE(kKernelsAvxVnniEvex)
#else
EMEL_KERNEL_TABLE(kKernelsAvxVnni)
#endif
