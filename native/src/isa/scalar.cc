// The specification, compiled for any CPU of the family.
#include "lanes/scalar.h"
// lanes first
#include "kernels/unit.h"

EMEL_KERNEL_TABLE(kKernelsScalar)
