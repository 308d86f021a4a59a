// Packed matrix times activations: one lane is one output row, blocks ascending, no sum across lanes.
//
// acc = fma(float(idot), s * da, acc), then acc = fma(m, da * sum, acc) where the format has an offset. The zero
// point of Q4_0 (8) and Q8_0 (128) is taken off in the integers, where it is exact.
#pragma once

namespace emel {
namespace {

struct FormatQ4_0 {
  static constexpr uint32_t kType = EMEL_TYPE_Q4_0;
  static constexpr int kZeroBits = 3;
  static constexpr bool kOffset = false;
  template <int T>
  static EMEL_INLINE_MEMBER void dot(const uint8_t* w, const int8_t* a, size_t low_at, size_t stride, I32 (&out)[T]) {
    dot_q4<T>(w, a, low_at, stride, out);
  }
  static EMEL_INLINE_MEMBER I32 dot_single(const uint8_t* w, const int8_t* a, size_t low_at) {
    return dot_q4_single(w, a, low_at);
  }
};
struct FormatQ4_1 : FormatQ4_0 {
  static constexpr uint32_t kType = EMEL_TYPE_Q4_1;
  static constexpr int kZeroBits = -1;
  static constexpr bool kOffset = true;
};
struct FormatQ8_0 {
  static constexpr uint32_t kType = EMEL_TYPE_Q8_0;
  static constexpr int kZeroBits = 7;
  static constexpr bool kOffset = false;
  template <int T>
  static EMEL_INLINE_MEMBER void dot(const uint8_t* w, const int8_t* a, size_t low_at, size_t stride, I32 (&out)[T]) {
    dot_q8<T>(w, a, low_at, stride, out);
  }
  static EMEL_INLINE_MEMBER I32 dot_single(const uint8_t* w, const int8_t* a, size_t low_at) {
    return dot_q8_single(w, a, low_at);
  }
};

EMEL_INLINE void store_rows(const MatmulArgs& m, size_t group, size_t token, F32 acc) {
  const size_t row = group * kRowsPerGroup;
  const int left = lanes_left(row, m.rows);
  if (m.bias != nullptr) acc = f_add(acc, load_left(m.bias + row, left));
  store_left(m.out + token * m.out_stride + row, acc, left);
}

// What one block adds to an output: the scaled product, then the offset.
template <class Format>
EMEL_INLINE F32 add_block(F32 acc, I32 idot, const uint16_t* scales, const uint8_t* activation,
                          const QuantizedLayout& layout, size_t b) {
  if constexpr (Format::kZeroBits >= 0) {
    int32_t negative_sum;
    memcpy(&negative_sum, activation + layout.negative_sums_at() + 4 * b, 4);
    idot = i_add(idot, i_shl<Format::kZeroBits>(i_set1(negative_sum)));
  }
  float da;
  memcpy(&da, activation + layout.scales_at() + 4 * b, 4);
  acc = f_fma(f_from_i(idot), f_mul(f_load_f16(scales), f_set1(da)), acc);
  if constexpr (Format::kOffset) {
    float scaled_sum;
    memcpy(&scaled_sum, activation + layout.scaled_sums_at() + 4 * b, 4);
    acc = f_fma(f_load_f16(scales + kRowsPerGroup), f_set1(scaled_sum), acc);
  }
  return acc;
}

template <class Format>
EMEL_INLINE const uint16_t* scales_of(const uint8_t* group, size_t b) {
  return reinterpret_cast<const uint16_t*>(group + BlockLayout(Format::kType).scales_at(b));
}
template <class Format>
EMEL_INLINE const uint8_t* quants_of(const uint8_t* group, size_t b) {
  return group + BlockLayout(Format::kType).quants_at(b);
}

// One row group times T tokens.
template <class Format, int T>
EMEL_INLINE void token_tile(const MatmulArgs& m, size_t group_bytes, const QuantizedLayout& layout,
                            size_t group, size_t token) {
  const uint8_t* activation = m.activation + token * m.activation_stride;
  const uint8_t* weights = m.packed + group * group_bytes;
  F32 acc[T];
#pragma unroll
  for (int t = 0; t < T; ++t) acc[t] = f_zero();
  for (size_t b = 0; b < layout.n_blocks; ++b) {
    I32 idot[T];
    Format::template dot<T>(quants_of<Format>(weights, b),
                            reinterpret_cast<const int8_t*>(activation) + b * kBlock, layout.low_at(),
                            m.activation_stride, idot);
#pragma unroll
    for (int t = 0; t < T; ++t) {
      acc[t] = add_block<Format>(acc[t], idot[t], scales_of<Format>(weights, b),
                                 activation + static_cast<size_t>(t) * m.activation_stride, layout, b);
    }
  }
#pragma unroll
  for (int t = 0; t < T; ++t) store_rows(m, group, token + static_cast<size_t>(t), acc[t]);
}

// One token: the slice of the matrix is read once, from end to end, which is all the memory system is good at.
template <class Format>
EMEL_INLINE void single_token(const MatmulArgs& m, size_t group_bytes, const QuantizedLayout& layout) {
  for (size_t group = m.group_begin; group < m.group_end; ++group) {
    const uint8_t* weights = m.packed + group * group_bytes;
    F32 acc = f_zero();
    for (size_t b = 0; b < layout.n_blocks; ++b) {
      const int8_t* block = reinterpret_cast<const int8_t*>(m.activation) + b * kBlock;
      const I32 idot = Format::dot_single(quants_of<Format>(weights, b), block, layout.low_at());
      acc = add_block<Format>(acc, idot, scales_of<Format>(weights, b), m.activation, layout, b);
    }
    store_rows(m, group, 0, acc);
  }
}

// Tokens of one panel stay in the second-level cache while every group of the slice passes over them; a token tile
// stays in the first-level cache for as many groups as kTileGroups.
constexpr size_t kPanelBytes = 384 * 1024;
constexpr size_t kTileGroups = 4;

template <class Format, int T>
EMEL_INLINE size_t token_tiles(const MatmulArgs& m, size_t group_bytes, const QuantizedLayout& layout,
                               size_t group_begin, size_t group_end, size_t token, size_t token_end) {
  for (; token + T <= token_end; token += T) {
    for (size_t group = group_begin; group < group_end; ++group) {
      token_tile<Format, T>(m, group_bytes, layout, group, token);
    }
  }
  return token;
}

template <class Format>
void matmul_blocks(const MatmulArgs& m) {
  const QuantizedLayout layout(m.cols);
  const size_t group_bytes = BlockLayout(Format::kType).group_bytes(layout.n_blocks);
  if (m.n_tokens == 1) return single_token<Format>(m, group_bytes, layout);
  size_t panel = kPanelBytes / m.activation_stride / kTileTokens * kTileTokens;
  if (panel == 0) panel = kTileTokens;
  for (size_t begin = 0; begin < m.n_tokens; begin += panel) {
    const size_t end = begin + panel < m.n_tokens ? begin + panel : m.n_tokens;
    for (size_t group = m.group_begin; group < m.group_end; group += kTileGroups) {
      const size_t last = group + kTileGroups < m.group_end ? group + kTileGroups : m.group_end;
      size_t token = token_tiles<Format, kTileTokens>(m, group_bytes, layout, group, last, begin, end);
      if constexpr (kTileTokens > 4) token = token_tiles<Format, 4>(m, group_bytes, layout, group, last, token, end);
      if constexpr (kTileTokens > 2) token = token_tiles<Format, 2>(m, group_bytes, layout, group, last, token, end);
      token_tiles<Format, 1>(m, group_bytes, layout, group, last, token, end);
    }
  }
}

EMEL_INLINE F32 load_column(const uint16_t* p) { return f_load_f16(p); }
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
