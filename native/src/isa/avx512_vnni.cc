// AVX-512 F/BW/DQ/VL + VNNI.
#include "lanes/avx512.h"
// lanes first
#include "kernels/unit.h"

EMEL_KERNEL_TABLE(kKernelsAvx512Vnni)
