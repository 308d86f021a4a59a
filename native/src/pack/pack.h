// Matrices in the packed layout: one row as float32, whole ones written, destinations checked.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "emel.h"

namespace emel {

// out (cols,): the values of row exactly as emel_dequantize gives them for the row's GGUF bytes.
void unpack_row(uint32_t type, const uint8_t* packed, size_t cols, size_t row, float* out);

// A matrix, or whole row groups of one, on the calling thread; the job is taken to be sound.
void pack_matrix(const emel_pack_job& job);

// Refuses what no packed matrix can be written to; index is named.
emel_status check_pack_target(uint32_t type, uint64_t rows, uint64_t cols, const void* dst, uint64_t dst_bytes,
                              uint64_t index);

}  // namespace emel
