// The two memory layouts everything numeric agrees on.
//
// Packed weights: 16 consecutive rows of a matrix form a group, one vector lane per row. A group of a block
// format is one sequence of units, read from end to end: a cache line of scales (16 float16 per block and kind of
// scale: one block with scale and offset, or two blocks with a scale), then the quants of those blocks (256 bytes per
// block of nibbles, 512 of bytes; see lanes/scalar.h). A group of a float format holds 16 values per column. Missing
// rows of the last group and missing blocks of the last unit are zero.
//
// Quantised activations: one record per token, blocks of 32 values x = d * q, |q| <= 32512, q = 255 * high + low.
// First the int8 high parts of all blocks, then their int8 low parts, then per block float32 scale d, float32
// d * sum(q), int32 -sum(q), and int32 sums of each half block. Two int8 planes because one (3 % error in the
// logits of a small model) is not near enough to the exact answer: docs/decisions/0001-two-planes.md.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "emel.h"

namespace emel {
namespace {

constexpr size_t kRowsPerGroup = 16;
constexpr size_t kBlock = 32;
constexpr int kRadix = 255;  // of the two planes: each part stays within [-127, 127]
constexpr int kMostQuantum = 127 * kRadix + 127;
constexpr size_t kCacheLine = 64;

constexpr size_t round_up(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

struct QuantizedLayout {
  size_t n_blocks;
  constexpr explicit QuantizedLayout(size_t n) : n_blocks((n + kBlock - 1) / kBlock) {}
  constexpr size_t low_at() const { return n_blocks * kBlock; }
  constexpr size_t scales_at() const { return 2 * n_blocks * kBlock; }
  constexpr size_t scaled_sums_at() const { return scales_at() + 4 * n_blocks; }
  constexpr size_t negative_sums_at() const { return scaled_sums_at() + 4 * n_blocks; }
  constexpr size_t half_sums_at() const { return negative_sums_at() + 4 * n_blocks; }
  constexpr size_t bytes() const { return round_up(half_sums_at() + 8 * n_blocks, kCacheLine); }
};

constexpr size_t scale_kinds(uint32_t type) { return type == EMEL_TYPE_Q4_1 ? 2 : 1; }
constexpr bool is_block_type(uint32_t type) {
  return type == EMEL_TYPE_Q4_0 || type == EMEL_TYPE_Q4_1 || type == EMEL_TYPE_Q8_0;
}
constexpr bool is_float_type(uint32_t type) { return type == EMEL_TYPE_F32 || type == EMEL_TYPE_F16; }

// Where things lie in a group of a block type.
struct BlockLayout {
  size_t scale_bytes;  // of a block
  size_t quant_bytes;  // of a block
  size_t unit_blocks;
  size_t unit_bytes;
  constexpr explicit BlockLayout(uint32_t type)
      : scale_bytes(scale_kinds(type) * kRowsPerGroup * 2),
        quant_bytes(kRowsPerGroup * (type == EMEL_TYPE_Q8_0 ? 32 : 16)),
        unit_blocks(kCacheLine / scale_bytes),
        unit_bytes(kCacheLine + unit_blocks * quant_bytes) {}
  constexpr size_t scales_at(size_t block) const {
    return block / unit_blocks * unit_bytes + block % unit_blocks * scale_bytes;
  }
  constexpr size_t quants_at(size_t block) const {
    return block / unit_blocks * unit_bytes + kCacheLine + block % unit_blocks * quant_bytes;
  }
  constexpr size_t group_bytes(size_t n_blocks) const {
    return (n_blocks + unit_blocks - 1) / unit_blocks * unit_bytes;
  }
};

constexpr size_t group_bytes(uint32_t type, size_t cols) {
  if (is_float_type(type)) return round_up(cols * kRowsPerGroup * (type == EMEL_TYPE_F32 ? 4 : 2), kCacheLine);
  return BlockLayout(type).group_bytes(cols / kBlock);
}

// A KV block of one layer holds per kv head: keys (head_dim, 16 tokens), then values (16 tokens, padded head_dim),
// float16.
struct KvLayout {
  size_t padded_head_dim;
  size_t values_at;  // of a head
  size_t head_bytes;
  size_t block_bytes;
  constexpr KvLayout(size_t n_kv_heads, size_t head_dim)
      : padded_head_dim(round_up(head_dim, 16)),
        values_at(round_up(head_dim * EMEL_KV_BLOCK * 2, kCacheLine)),
        head_bytes(values_at + padded_head_dim * EMEL_KV_BLOCK * 2),
        block_bytes(head_bytes * n_kv_heads) {}
};

}  // namespace
}  // namespace emel
