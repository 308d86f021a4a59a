// GGUF's lattice formats (IQ1, IQ2, IQ3): a file names points of a grid and signs; here each value becomes an index
// into the format's table of at most 16 values (table_of), which holds all of them exactly.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "pack/source.h"

namespace emel {

extern const uint16_t kGrid2Xxs[256];
extern const uint16_t kGrid2Xs[512];
extern const uint16_t kGrid2S[1024];
extern const uint16_t kGrid3Xxs[256];
extern const uint16_t kGrid3S[512];
extern const uint16_t kGrid1[2048];

// Block j of 32 elements of the super block at p.
void read_iq2_xxs(const uint8_t* p, size_t j, BlockValues* out);
void read_iq2_xs(const uint8_t* p, size_t j, BlockValues* out);
void read_iq2_s(const uint8_t* p, size_t j, BlockValues* out);
void read_iq3_xxs(const uint8_t* p, size_t j, BlockValues* out);
void read_iq3_s(const uint8_t* p, size_t j, BlockValues* out);
void read_iq1_s(const uint8_t* p, size_t j, BlockValues* out);
void read_iq1_m(const uint8_t* p, size_t j, BlockValues* out);

}  // namespace emel
