// GGUF's block formats as they lie in files: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "emel.h"

namespace emel {

// 32 elements of one row: quants as the kernels see them (table formats: the index), and the scales beside them.
struct BlockValues {
  uint8_t q[32];
  uint16_t scale;  // float16 (or bfloat16) s, or d
  uint16_t offset;  // float16 m, or dmin
  uint8_t sub_scale[2];  // i of each half
  uint8_t sub_offset[2];  // j of each half
};

// Bytes and elements of a type's block in a file; {0, 0} for a type without one here.
struct SourceBlock {
  uint64_t bytes;
  uint64_t elements;
};
constexpr SourceBlock source_block(uint32_t type) {
  switch (type) {
    case EMEL_TYPE_F32:
      return {4, 1};
    case EMEL_TYPE_F16:
    case EMEL_TYPE_BF16:
      return {2, 1};
    case EMEL_TYPE_Q4_0:
    case EMEL_TYPE_IQ4_NL:
      return {18, 32};
    case EMEL_TYPE_Q4_1:
      return {20, 32};
    case EMEL_TYPE_Q5_0:
      return {22, 32};
    case EMEL_TYPE_Q5_1:
      return {24, 32};
    case EMEL_TYPE_Q8_0:
      return {34, 32};
    case EMEL_TYPE_MXFP4:
      return {17, 32};
    case EMEL_TYPE_Q2_K:
      return {84, 256};
    case EMEL_TYPE_Q3_K:
      return {110, 256};
    case EMEL_TYPE_Q4_K:
      return {144, 256};
    case EMEL_TYPE_Q5_K:
      return {176, 256};
    case EMEL_TYPE_Q6_K:
      return {210, 256};
    case EMEL_TYPE_IQ4_XS:
      return {136, 256};
    case EMEL_TYPE_IQ1_S:
      return {50, 256};
    case EMEL_TYPE_IQ1_M:
      return {56, 256};
    case EMEL_TYPE_IQ2_XXS:
      return {66, 256};
    case EMEL_TYPE_IQ2_XS:
      return {74, 256};
    case EMEL_TYPE_IQ2_S:
      return {82, 256};
    case EMEL_TYPE_IQ3_XXS:
      return {98, 256};
    case EMEL_TYPE_IQ3_S:
      return {110, 256};
    case EMEL_TYPE_TQ1_0:
      return {54, 256};
    case EMEL_TYPE_TQ2_0:
      return {66, 256};
    default:
      return {0, 0};
  }
}

// Block index (of 32 elements) of a row.
void read_block(uint32_t type, const uint8_t* row, size_t index, BlockValues* out);

// The 32 values exactly as the format defines them.
void block_floats(uint32_t type, const BlockValues& values, float* out);

}  // namespace emel
