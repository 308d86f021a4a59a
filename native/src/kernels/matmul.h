// Packed matrix times activations: one lane is one output row, blocks ascending, no sum across lanes.
//
// acc = fma(float(idot), s * da, acc) for the block (or each half of it), then acc = fma(m, da * sum, acc) where the
// format has an offset. A zero point is taken off in the integers, where it is exact.
#pragma once

namespace emel {
namespace {

// The 64 bytes j of a block from its bit planes, j a constant.
template <Quants kQuants, int j>
EMEL_INLINE U8 unpack_vector(const uint8_t* quants, const Table& table) {
  if constexpr (kQuants == Quants::kBytes) {
    return u_load(quants + 64 * j);
  } else if constexpr (kQuants == Quants::kTwo) {
    return u_shift_right<2 * (j % 4)>(u_load(quants + 64 * (j / 4)), 3);
  } else if constexpr (kQuants == Quants::kThree) {
    const U8 two = u_shift_right<2 * (j % 4)>(u_load(quants + 64 * (j / 4)), 3);
    const U8 bits = u_load(quants + 128);
    return u_or(two, j < 2 ? u_shift_left<(j < 2 ? 2 - j : 0)>(bits, 4) : u_shift_right<(j < 2 ? 0 : j - 2)>(bits, 4));
  } else {
    const U8 both = u_load(quants + 64 * (j % 4));
    const U8 nibbles = j < 4 ? u_mask(both, 15) : u_shift_right<4>(both, 15);
    if constexpr (kQuants == Quants::kTable) {
      return u_lookup(table.values, nibbles);
    } else if constexpr (kQuants == Quants::kFive) {
      const U8 bits = u_load(quants + 256);
      return u_or(nibbles,
                  j < 4 ? u_shift_left<(j < 4 ? 4 - j : 0)>(bits, 16) : u_shift_right<(j < 4 ? 0 : j - 4)>(bits, 16));
    } else if constexpr (kQuants == Quants::kSix) {
      const U8 pairs = u_load(quants + 256 + 64 * (j / 4));
      constexpr int kShift = 2 * (j % 4) - 4;  // of bits 2k and 2k+1 to bits 4 and 5
      return u_or(nibbles, kShift < 0 ? u_shift_left<(kShift < 0 ? -kShift : 0)>(pairs, 48)
                                      : u_shift_right<(kShift < 0 ? 0 : kShift)>(pairs, 48));
    } else {
      return nibbles;
    }
  }
}

template <uint32_t kType>
EMEL_INLINE void unpack_block(const uint8_t* group, size_t b, U8 (&w)[8]) {
  constexpr BlockLayout kLayout(kType);
  constexpr Quants kQuants = kLayout.format.quants;
  const uint8_t* quants = group + kLayout.quants_at(b);
  w[0] = unpack_vector<kQuants, 0>(quants, table_of(kType));
  w[1] = unpack_vector<kQuants, 1>(quants, table_of(kType));
  w[2] = unpack_vector<kQuants, 2>(quants, table_of(kType));
  w[3] = unpack_vector<kQuants, 3>(quants, table_of(kType));
  w[4] = unpack_vector<kQuants, 4>(quants, table_of(kType));
  w[5] = unpack_vector<kQuants, 5>(quants, table_of(kType));
  w[6] = unpack_vector<kQuants, 6>(quants, table_of(kType));
  w[7] = unpack_vector<kQuants, 7>(quants, table_of(kType));
}

EMEL_INLINE const uint16_t* halves_at(const uint8_t* p) { return reinterpret_cast<const uint16_t*>(p); }

// s of a block's half, for the 16 rows. Products of scales are exact in float32.
template <uint32_t kType>
EMEL_INLINE F32 scale_of(const uint8_t* group, size_t b, size_t half) {
  constexpr BlockLayout kLayout(kType);
  constexpr Scales kScales = kLayout.format.scales;
  const uint16_t* scale = halves_at(group + kLayout.scale_at(b));
  if constexpr (kScales == Scales::kBfloat) {
    return f_load_bf16(scale);
  } else if constexpr (kScales == Scales::kSuper) {
    const F32 product = f_mul(f_load_f16(scale), f_load_i8(group + kLayout.sub_scale_at(b, half)));
    return kLayout.format.fraction == 1 ? product : f_mul(product, f_set1(kLayout.format.fraction));
  } else if constexpr (kScales == Scales::kSuperOffset) {
    return f_mul(f_load_f16(scale), f_load_u8(group + kLayout.sub_scale_at(b, half)));
  } else if constexpr (kScales == Scales::kSuperNibbles) {
    return f_mul(f_load_f16(scale), f_load_low_nibbles(group + kLayout.sub_scale_at(b, half)));
  } else {
    return f_load_f16(scale);
  }
}

// m of a block's half.
template <uint32_t kType>
EMEL_INLINE F32 offset_of(const uint8_t* group, size_t b, size_t half) {
  constexpr BlockLayout kLayout(kType);
  constexpr Scales kScales = kLayout.format.scales;
  const F32 offset = f_load_f16(halves_at(group + kLayout.offset_at(b)));
  if constexpr (kScales == Scales::kSuperOffset) {
    return f_mul(f_sub(f_zero(), offset), f_load_u8(group + kLayout.sub_offset_at(b, half)));
  } else if constexpr (kScales == Scales::kSuperNibbles) {
    return f_mul(f_sub(f_zero(), offset), f_load_high_nibbles(group + kLayout.sub_scale_at(b, half)));
  } else {
    return offset;
  }
}

template <typename T>
EMEL_INLINE T read(const uint8_t* p) {
  T value;
  memcpy(&value, p, sizeof value);
  return value;
}

EMEL_INLINE void store_rows(const MatmulArgs& m, size_t group, size_t token, F32 acc) {
  const size_t row = group * kRowsPerGroup;
  const int left = lanes_left(row, m.rows);
  if (m.bias != nullptr) acc = f_add(acc, load_left(m.bias + row, left));
  store_left(m.out + token * m.out_stride + row, acc, left);
}

// What a half of block b adds to an output by its products.
template <uint32_t kType, int kHalf>
EMEL_INLINE F32 add_product(F32 acc, I32 idot, F32 scale, const uint8_t* record, const QuantizedLayout& layout,
                            size_t b) {
  constexpr Format kFormat = format_of(kType);
  if constexpr (kFormat.zero_bits >= 0 && kFormat.halves == 1) {
    const I32 negative_sum = i_set1(read<int32_t>(record + layout.negative_sums_at() + 4 * b));
    idot = i_add(idot, i_shl<kFormat.zero_bits>(negative_sum));
  } else if constexpr (kFormat.zero_bits >= 0) {
    const I32 sum = i_set1(read<int32_t>(record + layout.half_sums_at() + 8 * b + 4 * kHalf));
    idot = i_sub(idot, i_shl<kFormat.zero_bits>(sum));
  }
  return f_fma(f_from_i(idot), f_mul(scale, f_set1(read<float>(record + layout.scales_at() + 4 * b))), acc);
}

// What it adds by its offset.
template <uint32_t kType, int kHalf>
EMEL_INLINE F32 add_offset(F32 acc, F32 offset, const uint8_t* record, const QuantizedLayout& layout, size_t b) {
  if constexpr (format_of(kType).halves == 1) {
    return f_fma(offset, f_set1(read<float>(record + layout.scaled_sums_at() + 4 * b)), acc);
  } else {
    const float sum = static_cast<float>(read<int32_t>(record + layout.half_sums_at() + 8 * b + 4 * kHalf));
    return f_fma(offset, f_set1(read<float>(record + layout.scales_at() + 4 * b) * sum), acc);
  }
}

template <uint32_t kType, int T, int kHalf>
EMEL_INLINE void add_half(F32 (&acc)[T], const U8 (&w)[8], const uint8_t* group, const uint8_t* records, size_t stride,
                          const QuantizedLayout& layout, size_t b) {
  constexpr Format kFormat = format_of(kType);
  constexpr int kCount = kFormat.halves == 1 ? 8 : 4;
  I32 idot[T];
  dot_planes<T, quant_bits(kFormat.quants), kHalf * kCount, kCount>(
      w, reinterpret_cast<const int8_t*>(records) + b * kBlock, layout.low_at(), stride, idot);
  const F32 scale = scale_of<kType>(group, b, kHalf);
#pragma unroll
  for (int t = 0; t < T; ++t) {
    acc[t] = add_product<kType, kHalf>(acc[t], idot[t], scale, records + static_cast<size_t>(t) * stride, layout, b);
  }
}

template <uint32_t kType, int T, int kHalf>
EMEL_INLINE void add_offsets(F32 (&acc)[T], const uint8_t* group, const uint8_t* records, size_t stride,
                             const QuantizedLayout& layout, size_t b) {
  if constexpr (has_offset(format_of(kType).scales)) {
    const F32 offset = offset_of<kType>(group, b, kHalf);
#pragma unroll
    for (int t = 0; t < T; ++t) {
      acc[t] = add_offset<kType, kHalf>(acc[t], offset, records + static_cast<size_t>(t) * stride, layout, b);
    }
  }
}

// One row group times T tokens.
template <uint32_t kType, int T>
EMEL_INLINE void token_tile(const MatmulArgs& m, size_t group_bytes, const QuantizedLayout& layout, size_t group,
                            size_t token) {
  constexpr bool kTwice = format_of(kType).halves == 2;
  const uint8_t* records = m.activation + token * m.activation_stride;
  const uint8_t* weights = m.packed + group * group_bytes;
  F32 acc[T];
#pragma unroll
  for (int t = 0; t < T; ++t) acc[t] = f_zero();
  for (size_t b = 0; b < layout.n_blocks; ++b) {
    U8 w[8];
    unpack_block<kType>(weights, b, w);
    add_half<kType, T, 0>(acc, w, weights, records, m.activation_stride, layout, b);
    if constexpr (kTwice) add_half<kType, T, 1>(acc, w, weights, records, m.activation_stride, layout, b);
    add_offsets<kType, T, 0>(acc, weights, records, m.activation_stride, layout, b);
    if constexpr (kTwice) add_offsets<kType, T, 1>(acc, weights, records, m.activation_stride, layout, b);
  }
#pragma unroll
  for (int t = 0; t < T; ++t) store_rows(m, group, token + static_cast<size_t>(t), acc[t]);
}

template <uint32_t kType, int kHalf>
EMEL_INLINE F32 add_single_half(F32 acc, const U8 (&w)[8], const uint8_t* group, const uint8_t* record,
                                const QuantizedLayout& layout, size_t b) {
  constexpr Format kFormat = format_of(kType);
  constexpr int kCount = kFormat.halves == 1 ? 8 : 4;
  const int8_t* block = reinterpret_cast<const int8_t*>(record) + b * kBlock;
  const I32 idot = dot_single<quant_bits(kFormat.quants), kHalf * kCount, kCount>(w, block, layout.low_at());
  return add_product<kType, kHalf>(acc, idot, scale_of<kType>(group, b, kHalf), record, layout, b);
}

// One token: the slice of the matrix is read once, from end to end, which is all the memory system is good at.
template <uint32_t kType>
EMEL_INLINE void single_token(const MatmulArgs& m, size_t group_bytes, const QuantizedLayout& layout) {
  constexpr bool kTwice = format_of(kType).halves == 2;
  for (size_t group = m.group_begin; group < m.group_end; ++group) {
    const uint8_t* weights = m.packed + group * group_bytes;
    F32 acc[1] = {f_zero()};
    for (size_t b = 0; b < layout.n_blocks; ++b) {
      U8 w[8];
      unpack_block<kType>(weights, b, w);
      acc[0] = add_single_half<kType, 0>(acc[0], w, weights, m.activation, layout, b);
      if constexpr (kTwice) acc[0] = add_single_half<kType, 1>(acc[0], w, weights, m.activation, layout, b);
      add_offsets<kType, 1, 0>(acc, weights, m.activation, 0, layout, b);
      if constexpr (kTwice) add_offsets<kType, 1, 1>(acc, weights, m.activation, 0, layout, b);
    }
    store_rows(m, group, 0, acc[0]);
  }
}

// Tokens of one panel stay in the second-level cache while every group of the slice passes over them; a token tile
// stays in the first-level cache for as many groups as kTileGroups.
constexpr size_t kPanelBytes = 384 * 1024;
constexpr size_t kTileGroups = 4;

template <uint32_t kType, int T>
EMEL_INLINE size_t token_tiles(const MatmulArgs& m, size_t group_bytes, const QuantizedLayout& layout,
                               size_t group_begin, size_t group_end, size_t token, size_t token_end) {
  for (; token + T <= token_end; token += T) {
    for (size_t group = group_begin; group < group_end; ++group) {
      token_tile<kType, T>(m, group_bytes, layout, group, token);
    }
  }
  return token;
}

template <uint32_t kType>
void matmul_blocks(const MatmulArgs& m) {
  const QuantizedLayout layout(m.cols);
  const size_t group_bytes = BlockLayout(kType).group_bytes(layout.n_blocks);
  if (m.n_tokens == 1) return single_token<kType>(m, group_bytes, layout);
  size_t panel = kPanelBytes / m.activation_stride / kTileTokens * kTileTokens;
  if (panel == 0) panel = kTileTokens;
  for (size_t begin = 0; begin < m.n_tokens; begin += panel) {
    const size_t end = begin + panel < m.n_tokens ? begin + panel : m.n_tokens;
    for (size_t group = m.group_begin; group < m.group_end; group += kTileGroups) {
      const size_t last = group + kTileGroups < m.group_end ? group + kTileGroups : m.group_end;
      size_t token = token_tiles<kType, kTileTokens>(m, group_bytes, layout, group, last, begin, end);
      if constexpr (kTileTokens > 4) token = token_tiles<kType, 4>(m, group_bytes, layout, group, last, token, end);
      if constexpr (kTileTokens > 2) token = token_tiles<kType, 2>(m, group_bytes, layout, group, last, token, end);
      token_tiles<kType, 1>(m, group_bytes, layout, group, last, token, end);
    }
  }
}

struct Bfloat {
  uint16_t bits;
};

EMEL_INLINE F32 load_column(const uint16_t* p) { return f_load_f16(p); }
EMEL_INLINE F32 load_column(const Bfloat* p) { return f_load_bf16(&p->bits); }
EMEL_INLINE F32 load_column(const float* p) { return f_load(p); }

// Four interleaved partial sums over k, joined (0 + 2) + (1 + 3).
template <class Weight, int T>
EMEL_INLINE void float_tile(const MatmulArgs& m, const Weight* columns, size_t group, size_t token) {
  F32 acc[T][4];
#pragma unroll
  for (int t = 0; t < T; ++t) {
#pragma unroll
    for (int p = 0; p < 4; ++p) acc[t][p] = f_zero();
  }
  const float* x = reinterpret_cast<const float*>(m.activation + token * m.activation_stride);
  const size_t stride = m.activation_stride / sizeof(float);
  size_t k = 0;
  for (; k + 4 <= m.cols; k += 4) {
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const F32 w = load_column(columns + (k + static_cast<size_t>(p)) * kRowsPerGroup);
#pragma unroll
      for (int t = 0; t < T; ++t) {
        acc[t][p] = f_fma(w, f_set1(x[static_cast<size_t>(t) * stride + k + static_cast<size_t>(p)]), acc[t][p]);
      }
    }
  }
#pragma unroll
  for (int p = 0; p < 3; ++p) {
    if (k + static_cast<size_t>(p) >= m.cols) break;
    const F32 w = load_column(columns + (k + static_cast<size_t>(p)) * kRowsPerGroup);
#pragma unroll
    for (int t = 0; t < T; ++t) {
      acc[t][p] = f_fma(w, f_set1(x[static_cast<size_t>(t) * stride + k + static_cast<size_t>(p)]), acc[t][p]);
    }
  }
#pragma unroll
  for (int t = 0; t < T; ++t) {
    const F32 sum = f_add(f_add(acc[t][0], acc[t][2]), f_add(acc[t][1], acc[t][3]));
    store_rows(m, group, token + static_cast<size_t>(t), sum);
  }
}

template <class Weight>
void matmul_floats(const MatmulArgs& m) {
  const size_t stride = group_bytes(sizeof(Weight) == 2 ? EMEL_TYPE_F16 : EMEL_TYPE_F32, m.cols);
  for (size_t group = m.group_begin; group < m.group_end; ++group) {
    const Weight* columns = reinterpret_cast<const Weight*>(m.packed + group * stride);
    size_t token = 0;
    for (; token + kFloatTokens <= m.n_tokens; token += kFloatTokens) {
      float_tile<Weight, kFloatTokens>(m, columns, group, token);
    }
    for (; token < m.n_tokens; ++token) float_tile<Weight, 1>(m, columns, group, token);
  }
}

}  // namespace
}  // namespace emel
