// AArch64 NEON with signed integer dot products (Armv8.2-A FEAT_DotProd).
#include "lanes/neon_dot.h"
// lanes first
#include "kernels/unit.h"

EMEL_KERNEL_TABLE(kKernelsNeonDot)
