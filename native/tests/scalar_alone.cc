// Stands in for the wide instruction sets in programs built of the scalar one alone; nobody may choose these.
#include "kernels/table.h"

namespace emel {

#if defined(__x86_64__)
extern const Kernels kKernelsAvx2{};
extern const Kernels kKernelsAvxVnni{};
extern const Kernels kKernelsAvx512Vnni{};
extern const Kernels kKernelsAvx512Amx{};
#elif defined(__aarch64__)
extern const Kernels kKernelsNeonDot{};
extern const Kernels kKernelsNeonI8mm{};
#endif

}  // namespace emel
