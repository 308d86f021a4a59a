// The memory layouts everything numeric agrees on, besides the formats' own (formats.h).
//
// Packed weights: 16 consecutive rows of a matrix form a group, one vector lane per row. A group of a block format is
// a sequence of units (BlockLayout). In a vector of 64 bytes, byte 4 * row + i belongs to column 4 * j + i of the
// block. Nibbles hold j in the low and j + 4 in the high half, planes of two bits four j each, planes of one bit all
// eight. kTwo holds j of four blocks, a field of two bits each. kThree holds j and j + 3 in vector j of three, whose
// upper two bits are those of 6 and 7: two of 6, two of 7, the third of each. A group of a float format holds 16 values
// per column. Missing rows and missing blocks are zero.
//
// Quantised activations: one record per token, blocks of 32 values x = d * q. In two planes |q| <= 32512 and
// q = 255 * high + low: first the int8 high parts of all blocks, then their int8 low parts; or, on a route that joins
// them (Kernels::joins_planes), the int16 q itself, of four columns the second and the third exchanged. In one plane
// |q| <= 127, and there are no low parts. Then per block float32 scale d, float32 d * sum(q), int32 -sum(q), and int32
// sums of each half block. Two planes because one (3 % error in the logits of a small model) is not near enough to the
// exact answer; one for those who ask for it: docs/decisions/0001-two-planes.md.
#pragma once

#include "kernels/formats.h"

namespace emel {
namespace {

constexpr int kRadix = 255;  // of the two planes: each part stays within [-127, 127]
constexpr int kQueryPlanes = 2;  // of queries that meet keys of Q8_0, whatever the plan's activations are
constexpr int most_quantum(size_t n_planes) { return n_planes == 1 ? 127 : 127 * kRadix + 127; }

struct QuantizedLayout {
  size_t n_blocks;
  size_t n_planes;  // 1 or 2
  constexpr QuantizedLayout(size_t n, size_t n_planes_) : n_blocks((n + kBlock - 1) / kBlock), n_planes(n_planes_) {}
  constexpr size_t low_at() const { return n_blocks * kBlock; }
  constexpr size_t scales_at() const { return n_planes * n_blocks * kBlock; }
  constexpr size_t scaled_sums_at() const { return scales_at() + 4 * n_blocks; }
  constexpr size_t negative_sums_at() const { return scaled_sums_at() + 4 * n_blocks; }
  constexpr size_t half_sums_at() const { return negative_sums_at() + 4 * n_blocks; }
  constexpr size_t bytes() const { return round_up(half_sums_at() + 8 * n_blocks, kCacheLine); }
};

constexpr size_t group_bytes(uint32_t type, size_t cols) {
  if (is_float_type(type)) return round_up(cols * kRowsPerGroup * (type == EMEL_TYPE_F32 ? 4 : 2), kCacheLine);
  return BlockLayout(type).group_bytes(cols / kBlock);
}

constexpr size_t kKvPart = kBlock;  // numbers of a head that share a scale in a Q8_0 cache

constexpr bool is_kv_type(uint32_t type) {
  return type == EMEL_TYPE_F16 || type == EMEL_TYPE_F32 || type == EMEL_TYPE_Q8_0;
}

// Bytes of a number of a KV cache, without its scale.
constexpr size_t kv_number_bytes(uint32_t type) { return type == EMEL_TYPE_Q8_0 ? 1 : type == EMEL_TYPE_F32 ? 4 : 2; }

// A KV block of one layer holds per kv head the keys of 16 tokens, then their values.
// F16 and F32: keys (head_dim, 16), values (16, padded head_dim), float16 or float32.
// Q8_0: keys as a row group of a packed Q8_0 matrix, a key being a row; float16 scales of the values (parts of 32
// numbers, 16), then the values (16, padded head_dim), int8.
struct KvLayout {
  size_t padded_head_dim;
  size_t values_at;  // of a head: its values, or first their scales
  size_t scale_bytes;  // of the values
  size_t head_bytes;
  size_t block_bytes;
  constexpr KvLayout(uint32_t kv_type, size_t n_kv_heads, size_t head_dim)
      : padded_head_dim(round_up(head_dim, 16)),
        values_at(kv_type == EMEL_TYPE_Q8_0
                      ? BlockLayout(EMEL_TYPE_Q8_0).group_bytes(n_parts(head_dim))
                      : round_up(head_dim * EMEL_KV_BLOCK * kv_number_bytes(kv_type), kCacheLine)),
        scale_bytes(kv_type == EMEL_TYPE_Q8_0 ? round_up(n_parts(head_dim) * EMEL_KV_BLOCK * 2, kCacheLine) : 0),
        head_bytes(values_at + scale_bytes + padded_head_dim * EMEL_KV_BLOCK * kv_number_bytes(kv_type)),
        block_bytes(head_bytes * n_kv_heads) {}
  static constexpr size_t n_parts(size_t head_dim) { return (head_dim + kKvPart - 1) / kKvPart; }
};

// The keys a query sees, [first, end): what its window leaves of the n_keys of its sequence.
struct Sight {
  size_t before;  // of the query's own position
  size_t after;
  size_t n_keys;
  constexpr size_t first_key(size_t position) const { return position > before ? position - before : 0; }
  constexpr size_t end_key(size_t position) const {
    return position + after + 1 < n_keys ? position + after + 1 : n_keys;
  }
};

// Who goes to which expert: int32 places (n_rows, k), the grouped row of each choice (before grouping, its expert);
// pairs (n_rows * k), the choice that stands in each grouped row; begins (n_experts + 1), the first row of each expert.
struct RoutingLayout {
  size_t pairs_at;
  size_t begins_at;
  size_t bytes;
  constexpr RoutingLayout(size_t n_rows, size_t k, size_t n_experts)
      : pairs_at(n_rows * k), begins_at(2 * n_rows * k), bytes((2 * n_rows * k + n_experts + 1) * 4) {}
};

constexpr size_t kUnlimited = size_t{1} << 40;

}  // namespace
}  // namespace emel
