// Whole row groups of formats whose packed words lie in the file as they are, moved word by word.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace emel {

// Packs 16 rows, row_bytes apart, into a group; false for a type that has to be unpacked (pack/source.h).
bool pack_words(uint32_t type, const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* group);

}  // namespace emel
