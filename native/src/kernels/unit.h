// The body of every ISA unit: include a lanes header first, then this, then name the table.
#pragma once

#include "emel.h"
#include "kernels/layout.h"
#include "kernels/table.h"
// clang-format off: each of these uses the names of those before it
#include "kernels/math.h"
#include "kernels/quantize.h"
#include "kernels/matmul.h"
#include "kernels/attention.h"
#include "kernels/reduce.h"
// clang-format on

#define EMEL_KERNEL_TABLE(name)                                                                     \
  namespace emel {                                                                                  \
  const Kernels name = {                                                                            \
      matmul_blocks<FormatQ4_0>, matmul_blocks<FormatQ4_1>, matmul_blocks<FormatQ8_0>,              \
      matmul_floats<uint16_t>,   matmul_floats<float>,      rms_norm,                               \
      quantize,                  gated_silu,                rope_store,                             \
      attention,                 attention_chunk,           attention_join,                         \
      argmax,                    largest,                                                           \
  };                                                                                                \
  }
