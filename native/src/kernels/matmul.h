// Packed matrix times activations: one lane is one output row, blocks ascending, no sum across lanes.
//
// acc = fma(float(idot), s * da, acc) for the block (or each half of it), then acc = fma(m, da * sum, acc) where the
// format has an offset. A zero point is taken off in the integers, where it is exact.
#pragma once

namespace emel {
namespace {

// Blocks of kTwo come in fours that share their vectors: block b has field b % kFields of each.
constexpr int parts_of(Quants quants) { return quants == Quants::kTwo ? static_cast<int>(kFields) : 1; }

// By how many bits the weights of part kPart are too large: as many as their sums are shifted back by (kShiftSums).
template <uint32_t kType, int kPart>
constexpr int excess_bits() {
  return kShiftSums && format_of(kType).quants == Quants::kTwo ? 2 * kPart : 0;
}

// The 64 bytes j of a block from its bit planes, j a constant.
template <Quants kQuants, int kPart, int j>
EMEL_INLINE U8 unpack_vector(const uint8_t* quants, const Table& table) {
  if constexpr (kQuants == Quants::kBytes) {
    return u_load(quants + 64 * j);
  } else if constexpr (kQuants == Quants::kTwo) {
    const U8 four = u_load(quants + 64 * j);
    return kShiftSums ? u_mask(four, 3 << 2 * kPart) : u_shift_right<2 * kPart>(four, 3);
  } else if constexpr (kQuants == Quants::kThree) {
    const U8 fields = u_load(quants + 64 * (j % 3));
    if constexpr (j < 3) {
      return u_mask(fields, 7);
    } else if constexpr (j < 6) {
      return u_shift_right<3>(fields, 7);
    } else {
      return u_or(u_shift_right<6>(fields, 3), u_shift_right<j - 2>(u_load(quants + 128), 4));
    }
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

template <uint32_t kType, int kPart>
EMEL_INLINE void unpack_block(const uint8_t* group, size_t b, U8 (&w)[8]) {
  constexpr BlockLayout kLayout(kType);
  constexpr Quants kQuants = kLayout.format.quants;
  const uint8_t* quants = group + kLayout.quants_at(b);
  w[0] = unpack_vector<kQuants, kPart, 0>(quants, table_of(kType));
  w[1] = unpack_vector<kQuants, kPart, 1>(quants, table_of(kType));
  w[2] = unpack_vector<kQuants, kPart, 2>(quants, table_of(kType));
  w[3] = unpack_vector<kQuants, kPart, 3>(quants, table_of(kType));
  w[4] = unpack_vector<kQuants, kPart, 4>(quants, table_of(kType));
  w[5] = unpack_vector<kQuants, kPart, 5>(quants, table_of(kType));
  w[6] = unpack_vector<kQuants, kPart, 6>(quants, table_of(kType));
  w[7] = unpack_vector<kQuants, kPart, 7>(quants, table_of(kType));
}

EMEL_INLINE const uint16_t* halves_at(const uint8_t* p) { return reinterpret_cast<const uint16_t*>(p); }

// What the blocks of a unit share, for the 16 rows: d and -dmin of super formats, nothing of others.
struct UnitScales {
  F32 scale;
  F32 offset;
};

template <uint32_t kType>
EMEL_INLINE void load_unit_scales(const uint8_t* group, size_t b, UnitScales& unit) {
  constexpr BlockLayout kLayout(kType);
  constexpr Format kFormat = kLayout.format;
  if constexpr (is_super(kFormat.scales)) {
    if (b % kSuperBlocks != 0) return;
    unit.scale = f_load_f16(halves_at(group + kLayout.scale_at(b)));
    if constexpr (kFormat.fraction != 1) unit.scale = f_mul(unit.scale, f_set1(kFormat.fraction));
    if constexpr (has_offset(kFormat.scales)) {
      unit.offset = f_sub(f_zero(), f_load_f16(halves_at(group + kLayout.offset_at(b))));
    }
  }
}

// s of a block's half, for the 16 rows. Products of scales are exact in float32.
template <uint32_t kType>
EMEL_INLINE F32 scale_of(const uint8_t* group, size_t b, size_t half, const UnitScales& unit) {
  constexpr BlockLayout kLayout(kType);
  constexpr Scales kScales = kLayout.format.scales;
  if constexpr (kScales == Scales::kBfloat) {
    return f_load_bf16(halves_at(group + kLayout.scale_at(b)));
  } else if constexpr (kScales == Scales::kSuperHalf) {
    return unit.scale;
  } else if constexpr (kScales == Scales::kSuper) {
    return f_mul(unit.scale, f_load_i8(group + kLayout.sub_scale_at(b, half)));
  } else if constexpr (kScales == Scales::kSuperOffset) {
    return f_mul(unit.scale, f_load_u8(group + kLayout.sub_scale_at(b, half)));
  } else if constexpr (kScales == Scales::kSuperNibbles) {
    return f_mul(unit.scale, f_load_low_nibbles(group + kLayout.sub_scale_at(b, half)));
  } else {
    return f_load_f16(halves_at(group + kLayout.scale_at(b)));
  }
}

// m of a block's half.
template <uint32_t kType>
EMEL_INLINE F32 offset_of(const uint8_t* group, size_t b, size_t half, const UnitScales& unit) {
  constexpr BlockLayout kLayout(kType);
  constexpr Scales kScales = kLayout.format.scales;
  if constexpr (kScales == Scales::kSuperOffset) {
    return f_mul(unit.offset, f_load_u8(group + kLayout.sub_offset_at(b, half)));
  } else if constexpr (kScales == Scales::kSuperNibbles) {
    return f_mul(unit.offset, f_load_high_nibbles(group + kLayout.sub_scale_at(b, half)));
  } else {
    return f_load_f16(halves_at(group + kLayout.offset_at(b)));
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

// Of one token, for the halves of a super block's blocks: what the zero point takes off their products, an integer, or
// what their offsets are multiplied by.
template <uint32_t kType>
EMEL_INLINE void load_half_terms(const uint8_t* record, const QuantizedLayout& layout, size_t b,
                                 float (&terms)[2 * kSuperBlocks]) {
  constexpr Format kFormat = format_of(kType);
  if constexpr (kFormat.halves == 2) {
    if (b % kSuperBlocks != 0) return;
    const I32 sums = i_bits(f_load(reinterpret_cast<const float*>(record + layout.half_sums_at() + 8 * b)));
    if constexpr (kFormat.zero_bits >= 0) {
      f_store(terms, f_bits(i_shl<kFormat.zero_bits>(sums)));
    } else {
      const F32 scales = f_load_twice(reinterpret_cast<const float*>(record + layout.scales_at() + 4 * b));
      f_store(terms, f_mul(scales, f_from_i(sums)));
    }
  }
}

// What a half of block b adds to an output by its products.
template <uint32_t kType>
EMEL_INLINE F32 add_product(F32 acc, I32 idot, F32 scale, const uint8_t* record, const QuantizedLayout& layout,
                            size_t b, float half_term) {
  constexpr Format kFormat = format_of(kType);
  if constexpr (kFormat.zero_bits >= 0 && kFormat.halves == 1) {
    const I32 negative_sum = i_set1(read<int32_t>(record + layout.negative_sums_at() + 4 * b));
    idot = i_add(idot, i_shl<kFormat.zero_bits>(negative_sum));
  } else if constexpr (kFormat.zero_bits >= 0) {
    idot = i_sub(idot, i_bits(f_set1(half_term)));
  }
  return f_fma(f_from_i(idot), f_mul(scale, f_set1(read<float>(record + layout.scales_at() + 4 * b))), acc);
}

// What it adds by its offset.
template <uint32_t kType>
EMEL_INLINE F32 add_offset(F32 acc, F32 offset, const uint8_t* record, const QuantizedLayout& layout, size_t b,
                           float half_term) {
  if constexpr (format_of(kType).halves == 2) return f_fma(offset, f_set1(half_term), acc);
  return f_fma(offset, f_set1(read<float>(record + layout.scaled_sums_at() + 4 * b)), acc);
}

// One row group times T tokens, the first of which has its record at records.
template <uint32_t kType, int kPlanes, int T>
struct GroupTile {
  const uint8_t* group;
  const uint8_t* records;
  size_t stride;
  const QuantizedLayout& layout;
  const Fetch& fetch;
  UnitScales unit{};
  F32 acc[T]{};
  float half_terms[T][2 * kSuperBlocks]{};

  EMEL_INLINE_MEMBER const uint8_t* record(int t) const { return records + static_cast<size_t>(t) * stride; }
  template <int kHalf>
  EMEL_INLINE_MEMBER float half_term(int t, size_t b) const {
    return half_terms[t][2 * (b % kSuperBlocks) + kHalf];
  }

  template <int kHalf, int kPart>
  EMEL_INLINE_MEMBER void add_half(const U8 (&w)[8], size_t b) {
    constexpr Format kFormat = format_of(kType);
    constexpr int kCount = kFormat.halves == 1 ? 8 : 4;
    constexpr int kExcess = excess_bits<kType, kPart>();
    constexpr int kBits = quant_bits(kFormat.quants) + kExcess;
    const int8_t* block = reinterpret_cast<const int8_t*>(records) + b * kBlock * (kJoinsPlanes ? kPlanes : 1);
    I32 idot[T];
    if constexpr (T <= kChainTokens) {
#pragma unroll
      for (int t = 0; t < T; ++t) {
        const int8_t* token = block + static_cast<size_t>(t) * stride;
        idot[t] = dot_single<kPlanes, kBits, kHalf * kCount, kCount>(w, token, layout.low_at());
      }
    } else {
      dot_planes<kPlanes, T, kBits, kHalf * kCount, kCount>(w, block, layout.low_at(), stride, idot);
    }
    const F32 scale = scale_of<kType>(group, b, kHalf, unit);
#pragma unroll
    for (int t = 0; t < T; ++t) {
      if constexpr (kExcess != 0) idot[t] = i_shr<kExcess>(idot[t]);
      acc[t] = add_product<kType>(acc[t], idot[t], scale, record(t), layout, b, half_term<kHalf>(t, b));
    }
  }

  template <int kHalf>
  EMEL_INLINE_MEMBER void add_offsets(size_t b) {
    if constexpr (has_offset(format_of(kType).scales)) {
      const F32 offset = offset_of<kType>(group, b, kHalf, unit);
#pragma unroll
      for (int t = 0; t < T; ++t) {
        acc[t] = add_offset<kType>(acc[t], offset, record(t), layout, b, half_term<kHalf>(t, b));
      }
    }
  }

  template <int kPart>
  EMEL_INLINE_MEMBER void add_block(size_t b) {
    constexpr bool kTwice = format_of(kType).halves == 2;
    U8 w[8];
    unpack_block<kType, kPart>(group, b, w);
    add_half<0, kPart>(w, b);
    if constexpr (kTwice) add_half<1, kPart>(w, b);
    add_offsets<0>(b);
    if constexpr (kTwice) add_offsets<1>(b);
  }

  // All blocks of the group.
  EMEL_INLINE_MEMBER void add_blocks() {
    constexpr BlockLayout kLayout(kType);
    constexpr int kParts = parts_of(kLayout.format.quants);
    constexpr size_t kStep = kLayout.unit_bytes * kParts / kLayout.unit_blocks;
#pragma unroll
    for (int t = 0; t < T; ++t) acc[t] = f_zero();
    size_t wait = fetch.next == 0 ? SIZE_MAX : fetch.first;
    for (size_t b = 0; b < layout.n_blocks; b += kParts) {
      load_unit_scales<kType>(group, b, unit);
#pragma unroll
      for (int t = 0; t < T; ++t) load_half_terms<kType>(record(t), layout, b, half_terms[t]);
      const uint8_t* weights = group + b / kParts * kStep;
      if (fetch.near) fetch_near(weights + kFetchNear, kStep);
      if (fetch.ahead) fetch_far(weights + kFetchAhead, kStep);
      if (T == kTileTokens && wait-- == 0) {
        fetch_far(weights + fetch.next, kStep);
        wait = fetch.share - 1;
      }
      add_block<0>(b);
      if constexpr (kParts == 4) {
        add_block<1>(b + 1);
        add_block<2>(b + 2);
        add_block<3>(b + 3);
      }
    }
  }
};

template <uint32_t kType, int kPlanes, int T>
EMEL_INLINE void token_tile(const MatmulArgs& m, size_t group_bytes, const QuantizedLayout& layout, size_t group,
                            size_t token, const Fetch& fetch) {
  GroupTile<kType, kPlanes, T> tile{m.packed + group * group_bytes, m.activation + token * m.activation_stride,
                                    m.activation_stride, layout, fetch};
  tile.add_blocks();
#pragma unroll
  for (int t = 0; t < T; ++t) store_rows(m, group, token + static_cast<size_t>(t), tile.acc[t]);
}

// Tokens of one panel stay in the second-level cache while every group of the slice passes over them; a token tile
// stays in the first-level cache for as many groups as kTileGroups, fewer where these groups and the next ones, fetched
// meanwhile, would not stay in the second-level cache beside the panel.
constexpr size_t kPanelBytes = 384 * 1024;
constexpr size_t kTileGroups = 4;
constexpr size_t kTileGroupBytes = 192 * 1024;
constexpr size_t tile_groups(size_t group_bytes) {
  const size_t n = kTileGroupBytes / group_bytes;
  return n < 1 ? 1 : n < kTileGroups ? n : kTileGroups;
}

// Groups [begin, end) that token tiles pass over, one after the other, before they go on to the next ones of a slice.
struct TileGroups {
  size_t begin;
  size_t end;
  bool is_first;
  bool is_last;
};

template <uint32_t kType, int kPlanes, int T>
EMEL_INLINE size_t token_tiles(const MatmulArgs& m, size_t group_bytes, const QuantizedLayout& layout,
                               const TileGroups& groups, size_t token, size_t token_end) {
  const size_t n_passes = (token_end - token) / T;
  const bool shares = T == kTileTokens && n_passes > 1;
  const bool asks = m.fetches_near || fetches_ahead(format_of(kType).quants, T, layout.bytes());
  for (size_t pass = 0; pass < n_passes; ++pass, token += T) {
    const Fetch fetch{asks && (!shares || (pass == 0 && groups.is_first)), m.fetches_near,
                      shares && !groups.is_last ? (groups.end - groups.begin) * group_bytes : 0, n_passes, pass};
    for (size_t group = groups.begin; group < groups.end; ++group) {
      token_tile<kType, kPlanes, T>(m, group_bytes, layout, group, token, fetch);
    }
  }
  return token;
}

template <uint32_t kType, int kPlanes>
void matmul_planes(const MatmulArgs& m) {
  const QuantizedLayout layout(m.cols, kPlanes);
  const size_t group_bytes = BlockLayout(kType).group_bytes(layout.n_blocks);
  size_t panel = kPanelBytes / m.activation_stride / kTileTokens * kTileTokens;
  if (panel == 0) panel = kTileTokens;
  const size_t n_groups = tile_groups(group_bytes);
  for (size_t begin = 0; begin < m.n_tokens; begin += panel) {
    const size_t end = begin + panel < m.n_tokens ? begin + panel : m.n_tokens;
    for (size_t group = m.group_begin; group < m.group_end; group += n_groups) {
      const bool is_last = group + n_groups >= m.group_end;
      const TileGroups groups{group, is_last ? m.group_end : group + n_groups, group == m.group_begin, is_last};
      size_t token = token_tiles<kType, kPlanes, kTileTokens>(m, group_bytes, layout, groups, begin, end);
      if constexpr (kTileTokens > 4) {
        token = token_tiles<kType, kPlanes, 4>(m, group_bytes, layout, groups, token, end);
      }
      if constexpr (kTileTokens > 4) {
        token = token_tiles<kType, kPlanes, 3>(m, group_bytes, layout, groups, token, end);
      }
      if constexpr (kTileTokens > 2) {
        token = token_tiles<kType, kPlanes, 2>(m, group_bytes, layout, groups, token, end);
      }
      token_tiles<kType, kPlanes, 1>(m, group_bytes, layout, groups, token, end);
    }
  }
}

template <uint32_t kType>
void matmul_blocks(const MatmulArgs& m) {
  return m.n_planes == 1 ? matmul_planes<kType, 1>(m) : matmul_planes<kType, 2>(m);
}

struct Bfloat {
  uint16_t bits;
};

EMEL_INLINE F32 load_column(const uint16_t* p) { return f_load_f16(p); }
EMEL_INLINE F32 load_column(const Bfloat* p) { return f_load_bf16(&p->bits); }
EMEL_INLINE F32 load_column(const float* p) { return f_load(p); }

constexpr int kPartials = 4;  // interleaved sums over k, joined (0 + 2) + (1 + 3)
static_assert(kFloatPartials == kPartials || kFloatPartials * 2 == kPartials);

// Columns k with kFirst <= k % kPartials < kFirst + kCount, as many sums at once as there are registers for.
template <class Weight, int T, int kFirst, int kCount>
EMEL_INLINE void add_columns(const MatmulArgs& m, const Weight* columns, size_t token, F32 (&sums)[T][kPartials]) {
  F32 acc[T][kCount];
#pragma unroll
  for (int t = 0; t < T; ++t) {
#pragma unroll
    for (int p = 0; p < kCount; ++p) acc[t][p] = f_zero();
  }
  const float* x = reinterpret_cast<const float*>(m.activation + token * m.activation_stride);
  const size_t stride = m.activation_stride / sizeof(float);
  size_t k = 0;
  for (; k + kPartials <= m.cols; k += kPartials) {
    const uint8_t* weights = reinterpret_cast<const uint8_t*>(columns + k * kRowsPerGroup);
    constexpr size_t kStep = kPartials * kRowsPerGroup * sizeof(Weight);
    if (kFirst == 0 && m.fetches_near) fetch_near(weights + kFetchNear, kStep);
    if (kFirst == 0 && (T > 1 || m.fetches_near)) fetch_far(weights + kFetchAhead, kStep);
#pragma unroll
    for (int p = 0; p < kCount; ++p) {
      const size_t at = k + static_cast<size_t>(kFirst + p);
      const F32 w = load_column(columns + at * kRowsPerGroup);
#pragma unroll
      for (int t = 0; t < T; ++t) {
        acc[t][p] = f_fma(w, f_set1(x[static_cast<size_t>(t) * stride + at]), acc[t][p]);
        if constexpr (T > 1) f_keep_order(acc[t][p]);
      }
    }
  }
#pragma unroll
  for (int p = 0; p < kCount; ++p) {
    const size_t at = k + static_cast<size_t>(kFirst + p);
    if (at >= m.cols) break;
    const F32 w = load_column(columns + at * kRowsPerGroup);
#pragma unroll
    for (int t = 0; t < T; ++t) {
      acc[t][p] = f_fma(w, f_set1(x[static_cast<size_t>(t) * stride + at]), acc[t][p]);
    }
  }
#pragma unroll
  for (int t = 0; t < T; ++t) {
#pragma unroll
    for (int p = 0; p < kCount; ++p) sums[t][kFirst + p] = acc[t][p];
  }
}

template <class Weight, int T>
EMEL_INLINE void float_tile(const MatmulArgs& m, const Weight* columns, size_t group, size_t token) {
  F32 sums[T][kPartials];
  if constexpr (T == 1 || kFloatPartials == kPartials) {
    add_columns<Weight, T, 0, kPartials>(m, columns, token, sums);
  } else {
    add_columns<Weight, T, 0, kFloatPartials>(m, columns, token, sums);
    add_columns<Weight, T, kFloatPartials, kFloatPartials>(m, columns, token, sums);
  }
#pragma unroll
  for (int t = 0; t < T; ++t) {
    const F32 sum = f_add(f_add(sums[t][0], sums[t][2]), f_add(sums[t][1], sums[t][3]));
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
