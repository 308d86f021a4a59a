// One row's block into a row group's bit planes (kernels/layout.h), and back.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "pack/source.h"

namespace emel {

// lane: the row's place in its group.
void write_planes(uint32_t type, const BlockValues& values, uint8_t* group, size_t block, size_t lane);
void read_planes(uint32_t type, const uint8_t* group, size_t block, size_t lane, BlockValues* values);

}  // namespace emel
