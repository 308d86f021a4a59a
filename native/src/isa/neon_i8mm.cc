// AArch64 NEON with int8 matrix products (Armv8.6-A FEAT_I8MM).
#include "lanes/neon_i8mm.h"
// lanes first
#include "kernels/unit.h"

EMEL_KERNEL_TABLE(kKernelsNeonI8mm)
