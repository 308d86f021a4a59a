// Scores of a tile of queries with blocks of keys: one lane is one key. Keys without scales: the head's dimensions ascend.
// Keys of Q8_0 are rows of a packed matrix, so their scores are its product with the queries as quantised activations.
#pragma once

namespace emel {
namespace {

// R rows with B blocks, whose scores lie one after the other. kFetches: the blocks' values are fetched meanwhile.
template <class Block, int R, int B, bool kFetches = false>
EMEL_INLINE void score_rows(const float* queries, size_t padded, const Block* blocks, size_t head_dim, float scale,
                            float* scores) {
  F32 acc[B][R];
#pragma unroll
  for (int b = 0; b < B; ++b) {
#pragma unroll
    for (int r = 0; r < R; ++r) acc[b][r] = f_zero();
  }
  for (size_t d = 0; d < head_dim; ++d) {
    if constexpr (kFetches) {
      if (d * Block::kBytes % 4 == 0) {  // a line
#pragma unroll
        for (int b = 0; b < B; ++b) fetch_ahead(blocks[b].values + d * EMEL_KV_BLOCK);
      }
    }
    F32 key[B];
#pragma unroll
    for (int b = 0; b < B; ++b) key[b] = blocks[b].key(d);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const F32 query = f_set1(queries[static_cast<size_t>(r) * padded + d]);
#pragma unroll
      for (int b = 0; b < B; ++b) acc[b][r] = f_fma(query, key[b], acc[b][r]);
    }
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int b = 0; b < B; ++b) {
      f_store(scores + static_cast<size_t>(r) * kChunk + b * EMEL_KV_BLOCK, f_mul(acc[b][r], f_set1(scale)));
    }
  }
}

// Blocks at once, so that few rows are chains enough to keep the multipliers busy.
constexpr int blocks_at_once(int n_rows) {
  const int n = kScoreRows * kScoreBlocks / n_rows;
  return n >= 4 ? 4 : n >= 2 ? 2 : 1;
}

// All rows of one token, R or fewer.
template <int R, class Number>
EMEL_APART void score_token_rows(const Tile& tile, size_t n_rows, const FloatBlock<Number>* blocks, size_t n_blocks,
                                 size_t head_dim, float scale, float* scores) {
  using Block = FloatBlock<Number>;
  if constexpr (R > 1) {
    if (n_rows < R) return score_token_rows<R - 1>(tile, n_rows, blocks, n_blocks, head_dim, scale, scores);
  }
  constexpr int B = blocks_at_once(R);
  size_t b = 0;
  for (; b + B <= n_blocks; b += B) {
    score_rows<Block, R, B, true>(tile.queries, tile.padded, blocks + b, head_dim, scale, scores + b * EMEL_KV_BLOCK);
  }
  if constexpr (B > 1) {
    for (; b < n_blocks; ++b) {
      score_rows<Block, R, 1, true>(tile.queries, tile.padded, blocks + b, head_dim, scale, scores + b * EMEL_KV_BLOCK);
    }
  }
}

// Scores of rows [rows.begin, rows.end) with B blocks. The last rows are done together with some before them once more
// rather than fewer at a time; what lies behind the tile's rows is empty.
template <int B, class Number>
EMEL_INLINE void score_blocks(const AttentionArgs& a, const Tile& tile, const FloatBlock<Number>* blocks, Range rows,
                              float* scores) {
  WideBlock wide[B];
#pragma unroll
  for (int b = 0; b < B; ++b) wide[b] = widen_keys(blocks[b], a.head_dim, tile.wide + b * EMEL_KV_BLOCK * a.head_dim);
  const size_t n_rows = a.n_tokens * a.n_heads;
  const size_t last = n_rows > kScoreRows ? n_rows - kScoreRows : 0;
  for (size_t row = rows.begin; row < rows.end; row += kScoreRows) {
    const size_t at = at_most(row, last);
    score_rows<WideBlock, kScoreRows, B>(tile.queries + at * tile.padded, tile.padded, wide, a.head_dim, a.scale,
                                         scores + at * kChunk);
  }
}

template <int B>
EMEL_INLINE void score_blocks(const AttentionArgs& a, const Tile& tile, const Q8Block* blocks, Range rows,
                              float* scores) {
  if constexpr (B > 1) score_blocks<B - 1>(a, tile, blocks + 1, rows, scores + EMEL_KV_BLOCK);
  const Q8Block& block = *blocks;
  MatmulArgs m{};
  m.packed = block.keys;
  m.cols = a.head_dim;
  m.rows = EMEL_KV_BLOCK;
  m.group_end = 1;
  m.activation_stride = QuantizedLayout(a.head_dim, kQueryPlanes).bytes();
  m.activation = tile.records + rows.begin * m.activation_stride;
  m.n_planes = kQueryPlanes;
  m.n_tokens = rows.end - rows.begin;
  m.out = scores + rows.begin * kChunk;
  m.out_stride = kChunk;
  matmul_planes<EMEL_TYPE_Q8_0, kQueryPlanes>(m);
  const F32 scale = f_set1(a.scale);
  for (size_t row = rows.begin; row < rows.end; ++row) {
    float* of_row = scores + row * kChunk;
    f_store(of_row, f_mul(f_load(of_row), scale));
  }
}

// Scores of all heads of one token, at most kScoreRows, with n_blocks blocks.
template <class Number>
EMEL_INLINE void score_token(const AttentionArgs& a, const Tile& tile, const FloatBlock<Number>* blocks,
                             size_t n_blocks, float* scores) {
  score_token_rows<kScoreRows>(tile, a.n_heads, blocks, n_blocks, a.head_dim, a.scale, scores);
}

EMEL_INLINE void score_token(const AttentionArgs& a, const Tile& tile, const Q8Block* blocks, size_t n_blocks,
                             float* scores) {
  for (size_t b = 0; b < n_blocks; ++b) {
    for (size_t at = 0; at < EMEL_KV_BLOCK * blocks[b].padded; at += kCacheLine) fetch_ahead(blocks[b].values + at);
    score_blocks<1>(a, tile, blocks + b, {0, a.n_heads}, scores + b * EMEL_KV_BLOCK);
  }
}

}  // namespace
}  // namespace emel
