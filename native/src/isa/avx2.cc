// AVX2 + FMA + F16C.
#include "lanes/avx2_dot.h"
// lanes first
#include "kernels/unit.h"

EMEL_KERNEL_TABLE(kKernelsAvx2)
