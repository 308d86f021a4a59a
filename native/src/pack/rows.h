// Rows as they lie in a file into a row group.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace emel {

// n_rows (1 to 16) of a type source_block knows, row_bytes apart; rows and blocks that are missing are zero.
void pack_rows(uint32_t type, const uint8_t* rows, size_t n_rows, size_t row_bytes, size_t cols, uint8_t* group);

}  // namespace emel
