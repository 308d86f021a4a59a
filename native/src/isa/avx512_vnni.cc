// AVX-512 F/BW/DQ/VL + VNNI, and a second route: the same with products by tiles (AMX-INT8), compiled function by function.
#include "lanes/avx512.h"
// lanes first
#include "kernels/unit.h"
// what it adds to
#include "kernels/matmul_tiles.h"

EMEL_KERNEL_TABLE(kKernelsAvx512Vnni)

namespace emel {
constexpr Kernels kKernelsAvx512Amx = with_tiles(all_kernels());
}
