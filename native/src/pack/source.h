// GGUF's block formats as they lie in files: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
#pragma once

#include <stddef.h>
#include <stdint.h>

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
SourceBlock source_block(uint32_t type);

// Block index (of 32 elements) of a row.
void read_block(uint32_t type, const uint8_t* row, size_t index, BlockValues* out);

// The 32 values exactly as the format defines them.
void block_floats(uint32_t type, const BlockValues& values, float* out);

}  // namespace emel
