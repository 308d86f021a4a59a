// One row of a packed matrix as float32.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace emel {

// out (cols,): the values of row exactly as emel_dequantize gives them for the row's GGUF bytes.
void unpack_row(uint32_t type, const uint8_t* packed, size_t cols, size_t row, float* out);

}  // namespace emel
