// Integer products of sixteen tokens with sixteen rows by tiles (AMX-INT8). Included after kernels/matmul.h, whose order
// of float operations this keeps: only who adds up the integers differs.
//
// Tiles, vectors of products and their sums take turns over kTileBlocks blocks: a tile's sums go through memory, and
// vectors that ask for them at once would wait. Instructions: Intel SDM volume 1, chapter 18, and volume 2, TDPBSSD.
#pragma once

namespace emel {
namespace {

#define EMEL_TILES __attribute__((target("amx-tile,amx-int8")))

constexpr int kTileRows = 16;  // tokens of a tile
constexpr size_t kTileBlocks = 6;

// The operand of ldtilecfg, palette 1. It stands in read-only memory: there are compilers that take its stores for dead.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
// 0 to 3: int32 sums, a token a row. 4 and 5: 32 activations of sixteen tokens. 6: the weights, four columns of sixteen
// rows in each vector.
constexpr TileShapes tile_shapes() {
  TileShapes shapes;
  for (int at = 0; at < 7; ++at) {
    shapes.rows[at] = at == 6 ? 8 : kTileRows;
    shapes.row_bytes[at] = at == 4 || at == 5 ? kBlock : 64;
  }
  return shapes;
}
constexpr TileShapes kTileShapes = tile_shapes();

constexpr bool has_tiles(uint32_t type) {
  const Format format = format_of(type);
  return format.halves == 1 && format.quants != Quants::kTwo;
}

// Of kTileBlocks blocks: their weights, q - zero where there is a zero point, and the sums of either plane.
template <int kPlanes>
struct alignas(64) TileMemory {
  uint8_t weights[kTileBlocks][8 * 64];
  int32_t sums[kTileBlocks][kPlanes][kTileRows * kRowsPerGroup];
};

template <uint32_t kType>
EMEL_INLINE void store_weights(const uint8_t* group, size_t b, uint8_t* to) {
  constexpr int kZeroBits = format_of(kType).zero_bits;
  U8 w[8];
  unpack_block<kType, 0>(group, b, w);
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    if constexpr (kZeroBits >= 0) w[j] = u_subtract(w[j], 1 << kZeroBits);
    u_store(to + 64 * j, w[j]);
  }
}

// Sums of one block into memory; kFirst: the tiles they are made in, of which two blocks in turn have their own.
template <uint32_t kType, int kPlanes, int kFirst>
EMEL_TILES EMEL_INLINE void add_tiles(const uint8_t* weights, const int8_t* activations, size_t stride, size_t low_at,
                                      int32_t (*sums)[kTileRows * kRowsPerGroup]) {
  constexpr bool kIsSigned = format_of(kType).zero_bits >= 0;
  _tile_loadd(6, weights, 64);
  _tile_loadd(4, activations, stride);
  _tile_zero(kFirst);
  if constexpr (kIsSigned) {
    _tile_dpbssd(kFirst, 4, 6);
  } else {
    _tile_dpbsud(kFirst, 4, 6);
  }
  if constexpr (kPlanes == 2) {
    _tile_loadd(5, activations + low_at, stride);
    _tile_zero(kFirst + 1);
    if constexpr (kIsSigned) {
      _tile_dpbssd(kFirst + 1, 5, 6);
    } else {
      _tile_dpbsud(kFirst + 1, 5, 6);
    }
  }
  _tile_stored(kFirst, sums[0], 64);
  if constexpr (kPlanes == 2) _tile_stored(kFirst + 1, sums[1], 64);
}

// The integer 255 * high + low, rounded once: both are exact in float32, and so is their sum before fma rounds it.
template <int kPlanes>
EMEL_INLINE F32 tile_sum(const int32_t (*sums)[kTileRows * kRowsPerGroup], int t) {
  const F32 high = f_from_i(i_load(sums[0] + 16 * t));
  if constexpr (kPlanes == 1) return high;
  return f_fma(f_set1(kRadix), high, f_from_i(i_load(sums[1] + 16 * t)));
}

template <uint32_t kType, int kPlanes>
EMEL_TILES EMEL_INLINE void tile_of_tokens(const MatmulArgs& m, const uint8_t* group, const QuantizedLayout& layout,
                                           size_t group_index, size_t token, TileMemory<kPlanes>& memory) {
  const size_t stride = m.activation_stride;
  const uint8_t* records = m.activation + token * stride;
  const int8_t* activations = reinterpret_cast<const int8_t*>(records);
  UnitScales unit;
  F32 acc[kTileRows];
#pragma unroll
  for (int t = 0; t < kTileRows; ++t) acc[t] = f_zero();
  for (size_t begin = 0; begin < layout.n_blocks; begin += kTileBlocks) {
    const size_t n = layout.n_blocks - begin < kTileBlocks ? layout.n_blocks - begin : kTileBlocks;
    for (size_t i = 0; i < n; ++i) store_weights<kType>(group, begin + i, memory.weights[i]);
    for (size_t i = 0; i < n; i += 2) {
      const int8_t* block = activations + (begin + i) * kBlock;
      add_tiles<kType, kPlanes, 0>(memory.weights[i], block, stride, layout.low_at(), memory.sums[i]);
      if (i + 1 == n) break;
      add_tiles<kType, kPlanes, 2>(memory.weights[i + 1], block + kBlock, stride, layout.low_at(), memory.sums[i + 1]);
    }
    for (size_t i = 0; i < n; ++i) {
      const size_t b = begin + i;
      load_unit_scales<kType>(group, b, unit);
      const F32 scale = scale_of<kType>(group, b, 0, unit);
      F32 offset = f_zero();
      if constexpr (has_offset(format_of(kType).scales)) offset = offset_of<kType>(group, b, 0, unit);
#pragma unroll
      for (int t = 0; t < kTileRows; ++t) {
        const uint8_t* record = records + static_cast<size_t>(t) * stride;
        const F32 product = f_mul(scale, f_set1(read<float>(record + layout.scales_at() + 4 * b)));
        acc[t] = f_fma(tile_sum<kPlanes>(memory.sums[i], t), product, acc[t]);
        if constexpr (has_offset(format_of(kType).scales)) {
          acc[t] = add_offset<kType>(acc[t], offset, record, layout, b, 0);
        }
      }
    }
  }
#pragma unroll
  for (int t = 0; t < kTileRows; ++t) store_rows(m, group_index, token + static_cast<size_t>(t), acc[t]);
}

template <uint32_t kType, int kPlanes>
EMEL_TILES void matmul_tiles(const MatmulArgs& m) {
  const QuantizedLayout layout(m.cols, kPlanes);
  const size_t group_bytes = BlockLayout(kType).group_bytes(layout.n_blocks);
  const size_t n_tokens = m.n_tokens / kTileRows * kTileRows;
  size_t panel = kPanelBytes / m.activation_stride / kTileRows * kTileRows;
  if (panel == 0) panel = kTileRows;
  TileMemory<kPlanes> memory;
  _tile_loadconfig(&kTileShapes);
  for (size_t begin = 0; begin < n_tokens; begin += panel) {
    const size_t end = begin + panel < n_tokens ? begin + panel : n_tokens;
    for (size_t first = m.group_begin; first < m.group_end; first += kTileGroups) {
      const size_t last = first + kTileGroups < m.group_end ? first + kTileGroups : m.group_end;
      for (size_t token = begin; token < end; token += kTileRows) {
        for (size_t group = first; group < last; ++group) {
          tile_of_tokens<kType, kPlanes>(m, m.packed + group * group_bytes, layout, group, token, memory);
        }
      }
    }
  }
  _tile_release();  // or the system would save the tiles at every switch
}

// Tokens by sixteens with tiles, the rest with vectors.
template <uint32_t kType>
void matmul_blocks_by_tiles(const MatmulArgs& m) {
  const size_t n_tiled = m.n_tokens / kTileRows * kTileRows;
  if (n_tiled != 0) m.n_planes == 1 ? matmul_tiles<kType, 1>(m) : matmul_tiles<kType, 2>(m);
  if (n_tiled == m.n_tokens) return;
  MatmulArgs rest = m;
  rest.activation += n_tiled * m.activation_stride;
  rest.out += n_tiled * m.out_stride;
  rest.n_tokens -= n_tiled;
  matmul_blocks<kType>(rest);
}

template <uint32_t kType>
constexpr void set_tiles(Kernels& kernels) {
  static_assert(has_tiles(kType));
  kernels.matmul[kType] = matmul_blocks_by_tiles<kType>;
}

// The widest int8 multiply-add of this route, as peak_dot.
EMEL_TILES uint64_t peak_tiles(uint64_t n_rounds) {
  TileShapes shapes;
  for (int at = 0; at < 6; ++at) {
    shapes.rows[at] = kTileRows;
    shapes.row_bytes[at] = 64;
  }
  __asm__ volatile("" : : "r"(&shapes) : "memory");
  _tile_loadconfig(&shapes);
  uint8_t bytes[kTileRows * 64];
  for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = static_cast<uint8_t>(i % 7);
  _tile_loadd(4, bytes, 64);
  _tile_loadd(5, bytes, 64);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (uint64_t round = 0; round < n_rounds; ++round) {
    _tile_dpbssd(0, 4, 5);
    _tile_dpbssd(1, 4, 5);
    _tile_dpbssd(2, 4, 5);
    _tile_dpbssd(3, 4, 5);
  }
  _tile_release();
  return n_rounds * 4 * kTileRows * kRowsPerGroup * 64;
}

// Formats whose halves have scales of their own would fill a quarter of a tile: vectors do them as fast.
constexpr Kernels with_tiles(Kernels k) {
  set_tiles<EMEL_TYPE_Q4_0>(k);
  set_tiles<EMEL_TYPE_Q4_1>(k);
  set_tiles<EMEL_TYPE_Q5_0>(k);
  set_tiles<EMEL_TYPE_Q5_1>(k);
  set_tiles<EMEL_TYPE_Q8_0>(k);
  set_tiles<EMEL_TYPE_Q4_K>(k);
  set_tiles<EMEL_TYPE_Q5_K>(k);
  set_tiles<EMEL_TYPE_IQ4_NL>(k);
  set_tiles<EMEL_TYPE_IQ4_XS>(k);
  set_tiles<EMEL_TYPE_MXFP4>(k);
  set_tiles<EMEL_TYPE_IQ2_XXS>(k);
  set_tiles<EMEL_TYPE_IQ3_XXS>(k);
  set_tiles<EMEL_TYPE_IQ3_S>(k);
  k.matmul[EMEL_TYPE_IQ1_S] = k.matmul[EMEL_TYPE_IQ2_XXS];  // packed alike
  k.peak_dot = peak_tiles;
  return k;
}

}  // namespace
}  // namespace emel
