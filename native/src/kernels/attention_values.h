// Sums of values: one lane is one dimension of the head, key after key.
#pragma once

namespace emel {
namespace {

template <int R, int V>
EMEL_INLINE void load_sums(const float* out, size_t padded, F32 (&acc)[R][V]) {
#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int j = 0; j < V; ++j) acc[r][j] = f_load(out + static_cast<size_t>(r) * padded + 16 * j);
  }
}

template <int R, int V>
EMEL_INLINE void store_sums(float* out, size_t padded, const F32 (&acc)[R][V]) {
#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int j = 0; j < V; ++j) f_store(out + static_cast<size_t>(r) * padded + 16 * j, acc[r][j]);
  }
}

template <int R, int V>
EMEL_INLINE void add_value(const float* weights, const F32 (&value)[V], F32 (&acc)[R][V]) {
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const F32 weight = f_set1(weights[static_cast<size_t>(r) * kChunk]);
#pragma unroll
    for (int j = 0; j < V; ++j) acc[r][j] = f_fma(weight, value[j], acc[r][j]);
  }
}

// Adds n_keys values (n_keys, padded) to R rows, 16 * V dimensions of them.
template <int R, int V>
EMEL_INLINE void add_wide(const float* weights, const float* values, size_t padded, size_t n_keys, float* out) {
  F32 acc[R][V];
  load_sums<R, V>(out, padded, acc);
  for (size_t key = 0; key < n_keys; ++key) {
    F32 value[V];
#pragma unroll
    for (int j = 0; j < V; ++j) value[j] = f_load(values + key * padded + 16 * j);
    add_value<R, V>(weights + key, value, acc);
  }
  store_sums<R, V>(out, padded, acc);
}

template <int R>
EMEL_INLINE void add_wide_rows(const Tile& tile, const float* values, size_t row, size_t column, size_t n_keys) {
  const float* weights = tile.scores + row * kChunk + column;
  float* out = tile.chunk + row * tile.padded;
  size_t d = 0;
  for (; d + 16 * kValueVectors <= tile.padded; d += 16 * kValueVectors) {
    add_wide<R, kValueVectors>(weights, values + d, tile.padded, n_keys, out + d);
  }
  if constexpr (kValueVectors > 1) {
    for (; d < tile.padded; d += 16) add_wide<R, 1>(weights, values + d, tile.padded, n_keys, out + d);
  }
}

// Rows [row, end), R or fewer at a time.
template <int R>
EMEL_APART void add_wide_tile(const Tile& tile, const float* values, size_t row, size_t end, size_t column,
                              size_t n_keys) {
  for (; row + R <= end; row += R) add_wide_rows<R>(tile, values, row, column, n_keys);
  if constexpr (R > 1) {
    if (row < end) add_wide_tile<R - 1>(tile, values, row, end, column, n_keys);
  }
}

// Dimensions [d, d + n) of the keys of the next token or head, a sixteenth of a block at a time.
template <class Block>
struct NextKeys {
  const AttentionArgs& a;
  size_t d;
  size_t n;
  // Of the block that keys from this one on are in, what is fetched for its first token; nullptr: nothing.
  EMEL_INLINE_MEMBER const uint8_t* of_block(size_t key) const {
    if (key / EMEL_KV_BLOCK >= a.n_next_blocks) return nullptr;
    const size_t block = static_cast<size_t>(a.next_blocks[key / EMEL_KV_BLOCK]);
    return a.next_kv + block * a.block_bytes + EMEL_KV_BLOCK * d * Block::kBytes;
  }
  EMEL_INLINE_MEMBER void fetch(const uint8_t* from, size_t key) const {
    const size_t n_bytes = n * Block::kBytes;
    for (size_t at = 0; at < n_bytes; at += kCacheLine) fetch_ahead(from + key % EMEL_KV_BLOCK * n_bytes + at);
  }
};

// Keys [begin, end), counted from the first of the blocks, for R rows, 16 * V dimensions of them from d on.
template <class Block, int R, int V>
EMEL_INLINE void add_keys(const float* weights, const Block* blocks, size_t d, size_t begin, size_t end, float* out,
                          size_t padded, const AttentionArgs& a) {
  const NextKeys<Block> next_keys{a, d, 16 * V};
  F32 acc[R][V];
  load_sums<R, V>(out, padded, acc);
  for (size_t first = begin; first < end;) {
    const Block& block = blocks[first / EMEL_KV_BLOCK];
    const size_t next = at_most(first / EMEL_KV_BLOCK * EMEL_KV_BLOCK + EMEL_KV_BLOCK, end);
    float scales[(V / 2 + 1) * EMEL_KV_BLOCK];
    block.open_values(d, 16 * V, scales);
    const uint8_t* fetched = next_keys.of_block(first);
    for (size_t key = first; key < next; ++key) {
      if (fetched != nullptr) next_keys.fetch(fetched, key);
      F32 value[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const size_t part = (d + 16 * static_cast<size_t>(j)) / kKvPart - d / kKvPart;
        value[j] = block.value(key % EMEL_KV_BLOCK, d + 16 * static_cast<size_t>(j), scales + part * EMEL_KV_BLOCK);
      }
      add_value<R, V>(weights + key, value, acc);
    }
    first = next;
  }
  store_sums<R, V>(out, padded, acc);
}

// All rows of one token, kValueRows or fewer at a time.
template <class Block, int R>
EMEL_APART void add_token(const AttentionArgs& a, const Tile& tile, const Block* blocks, size_t row,
                          const float* weights, size_t begin, size_t end) {
  const size_t n_rows = a.n_heads;
  for (; row + R <= n_rows; row += R) {
    const float* from = weights + row * kChunk;
    float* out = tile.chunk + row * tile.padded;
    size_t d = 0;
    for (; d + 16 * kValueVectors <= tile.padded; d += 16 * kValueVectors) {
      add_keys<Block, R, kValueVectors>(from, blocks, d, begin, end, out + d, tile.padded, a);
    }
    if constexpr (kValueVectors > 1) {
      for (; d < tile.padded; d += 16) add_keys<Block, R, 1>(from, blocks, d, begin, end, out + d, tile.padded, a);
    }
  }
  if constexpr (R > 1) {
    if (row < n_rows) add_token<Block, R - 1>(a, tile, blocks, row, weights, begin, end);
  }
}

}  // namespace
}  // namespace emel
