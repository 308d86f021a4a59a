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
  static constexpr size_t kQuantBytes = 256;
  template <int T>
  static EMEL_INLINE_MEMBER void dot(const uint8_t* w, const int8_t* a, size_t low_at, size_t stride, I32 (&out)[T]) {
    dot_q4<T>(w, a, low_at, stride, out);
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
  static constexpr size_t kQuantBytes = 512;
  template <int T>
  static EMEL_INLINE_MEMBER void dot(const uint8_t* w, const int8_t* a, size_t low_at, size_t stride, I32 (&out)[T]) {
    dot_q8<T>(w, a, low_at, stride, out);
  }
};

EMEL_INLINE void store_rows(const MatmulArgs& m, size_t group, size_t token, F32 acc) {
  const size_t row = group * kRowsPerGroup;
  const int left = lanes_left(row, m.rows);
  if (m.bias != nullptr) acc = f_add(acc, load_left(m.bias + row, left));
  store_left(m.out + token * m.out_stride + row, acc, left);
}

// G row groups times T tokens.
template <class Format, int G, int T>
EMEL_INLINE void block_tile(const MatmulArgs& m, const PackedLayout& packed, const QuantizedLayout& layout,
                            size_t group, size_t token) {
  const uint8_t* activation = m.activation + token * m.activation_stride;
  const size_t stride = m.activation_stride;
  F32 acc[G][T];
#pragma unroll
  for (int g = 0; g < G; ++g) {
#pragma unroll
    for (int t = 0; t < T; ++t) acc[g][t] = f_zero();
  }
  const uint8_t* weights = m.packed + group * packed.group_bytes;
  constexpr size_t kScaleBytes = (Format::kOffset ? 2 : 1) * kRowsPerGroup * 2;
  for (size_t b = 0; b < layout.n_blocks; ++b) {
    const uint8_t* scale_da = activation + layout.scales_at() + 4 * b;
    const uint8_t* scaled_sum = activation + layout.scaled_sums_at() + 4 * b;
    const uint8_t* negative_sum = activation + layout.negative_sums_at() + 4 * b;
#pragma unroll
    for (int g = 0; g < G; ++g) {
      const uint8_t* base = weights + static_cast<size_t>(g) * packed.group_bytes;
      I32 idot[T];
      Format::template dot<T>(base + packed.quants_at + b * Format::kQuantBytes,
                              reinterpret_cast<const int8_t*>(activation) + b * kBlock, layout.low_at(), stride, idot);
      if constexpr (Format::kZeroBits >= 0) {
#pragma unroll
        for (int t = 0; t < T; ++t) {
          int32_t sum;
          memcpy(&sum, negative_sum + static_cast<size_t>(t) * stride, 4);
          idot[t] = i_add(idot[t], i_shl<Format::kZeroBits>(i_set1(sum)));
        }
      }
      const uint16_t* scales = reinterpret_cast<const uint16_t*>(base + b * kScaleBytes);
      const F32 s = f_load_f16(scales);
#pragma unroll
      for (int t = 0; t < T; ++t) {
        float da;
        memcpy(&da, scale_da + static_cast<size_t>(t) * stride, 4);
        acc[g][t] = f_fma(f_from_i(idot[t]), f_mul(s, f_set1(da)), acc[g][t]);
      }
      if constexpr (Format::kOffset) {
        const F32 offset = f_load_f16(scales + kRowsPerGroup);
#pragma unroll
        for (int t = 0; t < T; ++t) {
          float sum;
          memcpy(&sum, scaled_sum + static_cast<size_t>(t) * stride, 4);
          acc[g][t] = f_fma(offset, f_set1(sum), acc[g][t]);
        }
      }
    }
  }
#pragma unroll
  for (int g = 0; g < G; ++g) {
#pragma unroll
    for (int t = 0; t < T; ++t) {
      store_rows(m, group + static_cast<size_t>(g), token + static_cast<size_t>(t), acc[g][t]);
    }
  }
}

// Tokens of one panel stay in the second-level cache while every group of the slice passes over them.
constexpr size_t kPanelBytes = 384 * 1024;

template <class Format>
void matmul_blocks(const MatmulArgs& m) {
  const PackedLayout packed = packed_layout(Format::kType, m.cols);
  const QuantizedLayout layout(m.cols);
  size_t panel = kPanelBytes / m.activation_stride / kTileTokens * kTileTokens;
  if (panel == 0) panel = kTileTokens;
  for (size_t begin = 0; begin < m.n_tokens; begin += panel) {
    const size_t end = begin + panel < m.n_tokens ? begin + panel : m.n_tokens;
    size_t group = m.group_begin;
    if (end - begin == 1) {
      for (; group + kSingleGroups <= m.group_end; group += kSingleGroups) {
        block_tile<Format, kSingleGroups, 1>(m, packed, layout, group, begin);
      }
    }
    for (; group < m.group_end; ++group) {
      size_t token = begin;
      for (; token + kTileTokens <= end; token += kTileTokens) {
        block_tile<Format, 1, kTileTokens>(m, packed, layout, group, token);
      }
      if constexpr (kTileTokens > 4) {
        for (; token + 4 <= end; token += 4) block_tile<Format, 1, 4>(m, packed, layout, group, token);
      }
      if constexpr (kTileTokens > 2) {
        for (; token + 2 <= end; token += 2) block_tile<Format, 1, 2>(m, packed, layout, group, token);
      }
      for (; token < end; ++token) block_tile<Format, 1, 1>(m, packed, layout, group, token);
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
  const size_t group_bytes = packed_layout(sizeof(Weight) == 2 ? EMEL_TYPE_F16 : EMEL_TYPE_F32, m.cols).group_bytes;
  for (size_t group = m.group_begin; group < m.group_end; ++group) {
    const Weight* columns = reinterpret_cast<const Weight*>(m.packed + group * group_bytes);
    size_t token = 0;
    for (; token + kFloatTokens <= m.n_tokens; token += kFloatTokens) {
      float_tile<Weight, kFloatTokens>(m, columns, group, token);
    }
    for (; token < m.n_tokens; ++token) float_tile<Weight, 1>(m, columns, group, token);
  }
}

}  // namespace
}  // namespace emel
