// Grouped-query attention over the paged KV cache.
//
// Keys are walked in chunks of 256 aligned to absolute positions. In a chunk: one lane is one key for scores
// (d ascending), softmax sums in sixteen interleaved partial sums (key % 16), values accumulate key by key; keys
// that the query does not see take no part at all. Chunk results join in ascending order, a sink after them. So neither
// the batch, the prefill chunking nor the lanes can change a bit.
#pragma once

namespace emel {
namespace {

constexpr size_t kChunk = EMEL_ATTENTION_CHUNK;

struct Tile {
  float* scores;  // (kAttentionRows, 256)
  float* running;  // (kAttentionRows, padded)
  float* chunk;  // (kAttentionRows, padded)
  float* queries;  // (kAttentionRows, padded)
  float* running_max;  // (kAttentionRows,)
  float* running_sum;
  float* chunk_max;
  float* chunk_sum;
  float* wide;  // (16, padded): a block of keys or values as float32
  size_t padded;
};

EMEL_INLINE Tile tile_in(float* scratch, size_t head_dim) {
  Tile tile;
  tile.padded = round_up(head_dim, 16);
  tile.scores = scratch;
  tile.running = tile.scores + kAttentionRows * kChunk;
  tile.chunk = tile.running + kAttentionRows * tile.padded;
  tile.queries = tile.chunk + kAttentionRows * tile.padded;
  tile.running_max = tile.queries + kAttentionRows * tile.padded;
  tile.running_sum = tile.running_max + kAttentionRows;
  tile.chunk_max = tile.running_sum + kAttentionRows;
  tile.chunk_sum = tile.chunk_max + kAttentionRows;
  tile.wide = tile.chunk_sum + kAttentionRows;
  return tile;
}

EMEL_INLINE const uint8_t* kv_block(const AttentionArgs& a, size_t key) {
  return a.kv + static_cast<size_t>(a.blocks[key / EMEL_KV_BLOCK]) * a.block_bytes;
}

template <class Key, int R>
EMEL_INLINE void score_rows(const float* queries, size_t padded, const Key* keys, size_t head_dim, float scale,
                            float* scores) {
  F32 acc[R];
#pragma unroll
  for (int r = 0; r < R; ++r) acc[r] = f_zero();
  for (size_t d = 0; d < head_dim; ++d) {
    const F32 key = load_column(keys + d * EMEL_KV_BLOCK);
#pragma unroll
    for (int r = 0; r < R; ++r) acc[r] = f_fma(f_set1(queries[static_cast<size_t>(r) * padded + d]), key, acc[r]);
  }
#pragma unroll
  for (int r = 0; r < R; ++r) f_store(scores + static_cast<size_t>(r) * kChunk, f_mul(acc[r], f_set1(scale)));
}

template <class Key>
EMEL_INLINE void score_block(const AttentionArgs& a, const Tile& tile, const Key* keys, size_t row, size_t n_rows,
                             size_t column) {
  const auto scores = [&](size_t at) { return tile.scores + at * kChunk + column; };
  const auto queries = [&](size_t at) { return tile.queries + at * tile.padded; };
  for (; row + kScoreRows <= n_rows; row += kScoreRows) {
    score_rows<Key, kScoreRows>(queries(row), tile.padded, keys, a.head_dim, a.scale, scores(row));
  }
  if constexpr (kScoreRows > 3) {
    for (; row + 3 <= n_rows; row += 3) {
      score_rows<Key, 3>(queries(row), tile.padded, keys, a.head_dim, a.scale, scores(row));
    }
  }
  for (; row < n_rows; ++row) {
    score_rows<Key, 1>(queries(row), tile.padded, keys, a.head_dim, a.scale, scores(row));
  }
}

template <class Value, int R, int V>
EMEL_INLINE void value_rows(const float* weights, const Value* values, size_t padded, size_t n_keys, float* out) {
  F32 acc[R][V];
#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int j = 0; j < V; ++j) acc[r][j] = f_load(out + static_cast<size_t>(r) * padded + 16 * j);
  }
  for (size_t key = 0; key < n_keys; ++key) {
    F32 value[V];
#pragma unroll
    for (int j = 0; j < V; ++j) value[j] = load_column(values + key * padded + 16 * j);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const F32 weight = f_set1(weights[static_cast<size_t>(r) * kChunk + key]);
#pragma unroll
      for (int j = 0; j < V; ++j) acc[r][j] = f_fma(weight, value[j], acc[r][j]);
    }
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int j = 0; j < V; ++j) f_store(out + static_cast<size_t>(r) * padded + 16 * j, acc[r][j]);
  }
}

template <class Value, int R>
EMEL_INLINE void value_columns(const Tile& tile, const Value* values, size_t row, size_t column, size_t n_keys) {
  const float* weights = tile.scores + row * kChunk + column;
  float* out = tile.chunk + row * tile.padded;
  size_t d = 0;
  for (; d + 16 * kValueVectors <= tile.padded; d += 16 * kValueVectors) {
    value_rows<Value, R, kValueVectors>(weights, values + d, tile.padded, n_keys, out + d);
  }
  for (; d < tile.padded; d += 16) value_rows<Value, R, 1>(weights, values + d, tile.padded, n_keys, out + d);
}

template <class Value>
EMEL_INLINE void value_block(const Tile& tile, const Value* values, size_t row, size_t n_rows, size_t column,
                             size_t n_keys) {
  for (; row + kValueRows <= n_rows; row += kValueRows) {
    value_columns<Value, kValueRows>(tile, values, row, column, n_keys);
  }
  if constexpr (kValueRows > 3) {
    for (; row + 3 <= n_rows; row += 3) value_columns<Value, 3>(tile, values, row, column, n_keys);
  }
  for (; row < n_rows; ++row) value_columns<Value, 1>(tile, values, row, column, n_keys);
}

EMEL_INLINE void widen(const uint16_t* from, float* to, size_t n) {
  for (size_t i = 0; i < n; i += 16) f_store(to + i, f_load_f16(from + i));
}

// Weights of one row in place of its scores, for the keys [begin, end) of the chunk; what else lies in their vectors
// becomes zero.
EMEL_INLINE void softmax_row(float* scores, size_t begin, size_t end, float cap, float* max_out, float* sum_out) {
  const size_t first = begin / 16 * 16;
  const size_t n_lanes = round_up(end, 16);
  if (cap != 0.0f) {
    const F32 inverse = f_set1(1.0f / cap);
    for (size_t i = first; i < n_lanes; i += 16) {
      const F32 s = f_load(scores + i);
      const F32 capped = f_mul(f_tanh(f_mul(s, inverse)), f_set1(cap));
      f_store(scores + i, f_fma(s, f_zero(), capped));  // s * 0: as below
    }
  }
  for (size_t i = first; i < begin; ++i) scores[i] = scores[begin];
  for (size_t i = end; i < n_lanes; ++i) scores[i] = scores[begin];
  F32 largest = f_load(scores + first);
  for (size_t i = first + 16; i < n_lanes; i += 16) largest = f_max(largest, f_load(scores + i));
  const float max = tree_max(largest);
  const F32 max_f32x16 = f_set1(max);
  F32 sum = f_zero();
  for (size_t i = first; i < n_lanes; i += 16) {
    const F32 s = f_load(scores + i);
    // s * 0 is nothing for a finite score and NaN for any other, which must not vanish in exp's clamp.
    F32 weight = f_fma(s, f_zero(), f_exp(f_sub(s, max_f32x16)));
    f_store(scores + i, weight);
    if (i < begin || i + 16 > end) {
      for (size_t lane = i; lane < begin; ++lane) scores[lane] = 0.0f;
      for (size_t lane = end; lane < i + 16; ++lane) scores[lane] = 0.0f;
      weight = f_load(scores + i);
    }
    sum = f_add(sum, weight);
  }
  *max_out = max;
  *sum_out = tree_sum(sum);
}

// Who sees what, in a tile: both ends of what a token sees ascend with the token.
struct TileSight {
  Sight sight;
  size_t position;
  size_t n_tokens;
  size_t n_heads;
  EMEL_INLINE_MEMBER explicit TileSight(const AttentionArgs& a)
      : sight{a.keys_before, a.keys_after, a.n_keys}, position(a.position), n_tokens(a.n_tokens), n_heads(a.n_heads) {}
  EMEL_INLINE_MEMBER size_t first_key(size_t token) const { return sight.first_key(position + token); }
  EMEL_INLINE_MEMBER size_t end_key(size_t token) const { return sight.end_key(position + token); }
  // The first token whose sight ends behind this key.
  EMEL_INLINE_MEMBER size_t tokens_from(size_t key) const {
    const size_t own = position + sight.after;
    return key <= own ? 0 : key - own < n_tokens ? key - own : n_tokens;
  }
  // How many tokens' sight begins at this key or before.
  EMEL_INLINE_MEMBER size_t tokens_until(size_t key) const {
    const size_t own = key + sight.before + 1;
    return own <= position ? 0 : own - position < n_tokens ? own - position : n_tokens;
  }
};

struct RowRange {
  size_t begin;
  size_t end;
};

EMEL_INLINE size_t at_least(size_t x, size_t least) { return x > least ? x : least; }
EMEL_INLINE size_t at_most(size_t x, size_t most) { return x < most ? x : most; }

// Tokens [begin, end) see a part of the block of keys.
EMEL_INLINE void value_parts(const TileSight& s, const Tile& tile, const uint16_t* values, size_t begin, size_t end,
                             size_t key, size_t column) {
  for (size_t token = begin; token < end; ++token) {
    const size_t from = at_least(s.first_key(token), key) - key;
    const size_t to = at_most(s.end_key(token), key + EMEL_KV_BLOCK) - key;
    const size_t row = token * s.n_heads;
    value_block(tile, values + from * tile.padded, row, row + s.n_heads, column + from, to - from);
  }
}

// The values of one block of 16 keys for all rows that see any of them.
EMEL_INLINE void attend_values(const AttentionArgs& a, const TileSight& s, const Tile& tile, size_t key, size_t column,
                               bool wide) {
  const uint16_t* values = reinterpret_cast<const uint16_t*>(kv_block(a, key) + a.values_at);
  constexpr size_t kLast = EMEL_KV_BLOCK - 1;
  const size_t end = s.tokens_until(key + kLast);
  // Tokens that see the whole block.
  size_t full_begin = key + kLast < s.sight.n_keys ? s.tokens_from(key + kLast) : s.n_tokens;
  size_t full_end = s.tokens_until(key);
  if (full_begin >= full_end) full_begin = full_end = end;
  value_parts(s, tile, values, s.tokens_from(key), full_begin, key, column);
  value_parts(s, tile, values, full_end, end, key, column);
  if (full_begin == full_end) return;
  if (wide) {
    widen(values, tile.wide, tile.padded * EMEL_KV_BLOCK);
    value_block(tile, static_cast<const float*>(tile.wide), full_begin * s.n_heads, full_end * s.n_heads, column,
                EMEL_KV_BLOCK);
  } else {
    value_block(tile, values, full_begin * s.n_heads, full_end * s.n_heads, column, EMEL_KV_BLOCK);
  }
}

// Max, sum and values of one chunk for the rows of the tile that see any key of it, which it returns.
EMEL_INLINE RowRange attend_chunk(const AttentionArgs& a, const Tile& tile, size_t chunk) {
  const TileSight s(a);
  const size_t begin = chunk * kChunk;
  const size_t first_token = s.tokens_from(begin);
  const size_t end_token = s.tokens_until(begin + kChunk - 1);
  if (first_token >= end_token) return {0, 0};
  const RowRange rows{first_token * a.n_heads, end_token * a.n_heads};
  const size_t first_key = at_least(s.first_key(first_token) / EMEL_KV_BLOCK * EMEL_KV_BLOCK, begin);
  const size_t end = at_most(s.end_key(end_token - 1), begin + kChunk);
  const bool wide = a.n_tokens * a.n_heads > kScoreRows;  // widening once pays when several row tiles share it
  for (size_t key = first_key; key < end; key += EMEL_KV_BLOCK) {
    const uint16_t* keys = reinterpret_cast<const uint16_t*>(kv_block(a, key));
    const size_t row = s.tokens_from(key) * a.n_heads;
    const size_t n_rows = s.tokens_until(key + EMEL_KV_BLOCK - 1) * a.n_heads;
    if (wide) {
      widen(keys, tile.wide, a.head_dim * EMEL_KV_BLOCK);
      score_block(a, tile, static_cast<const float*>(tile.wide), row, n_rows, key - begin);
    } else {
      score_block(a, tile, keys, row, n_rows, key - begin);
    }
  }
  for (size_t row = rows.begin; row < rows.end; ++row) {
    const size_t token = row / a.n_heads;
    softmax_row(tile.scores + row * kChunk, at_least(s.first_key(token), begin) - begin,
                at_most(s.end_key(token), begin + kChunk) - begin, a.cap, tile.chunk_max + row, tile.chunk_sum + row);
  }
  for (size_t i = rows.begin * tile.padded; i < rows.end * tile.padded; i += 16) f_store(tile.chunk + i, f_zero());
  for (size_t key = first_key; key < end; key += EMEL_KV_BLOCK) attend_values(a, s, tile, key, key - begin, wide);
  return rows;
}

EMEL_INLINE void gather_queries(const AttentionArgs& a, const Tile& tile) {
  for (size_t token = 0; token < a.n_tokens; ++token) {
    for (size_t head = 0; head < a.n_heads; ++head) {
      const float* from = a.q + (a.token + token) * a.row_stride + (a.head + head) * a.head_dim;
      memcpy(tile.queries + (token * a.n_heads + head) * tile.padded, from, a.head_dim * sizeof(float));
    }
  }
}

// running := running joined with chunk; max and sum likewise.
EMEL_INLINE void join(float* running, float* running_max, float* running_sum, const float* chunk, float chunk_max,
                      float chunk_sum, size_t padded) {
  const float max = *running_max > chunk_max ? *running_max : chunk_max;
  const float keep = exp_one(*running_max - max);
  const float take = exp_one(chunk_max - max);
  *running_sum = *running_sum * keep + chunk_sum * take;
  *running_max = max;
  for (size_t d = 0; d < padded; d += 16) {
    const F32 kept = f_mul(f_load(running + d), f_set1(keep));
    f_store(running + d, f_fma(f_load(chunk + d), f_set1(take), kept));
  }
}

// A sink is one more score, without a value: it takes part in the largest and in the sum alone. A NaN stays.
EMEL_INLINE void join_sink(float* running, float* running_max, float* running_sum, float sink, size_t padded) {
  const float max = *running_max > sink ? *running_max : sink;
  const float keep = exp_one(*running_max - max);
  const float take = 0.0f * sink + exp_one(sink - max);
  *running_sum = *running_sum * keep + take;
  *running_max = max;
  for (size_t d = 0; d < padded; d += 16) f_store(running + d, f_mul(f_load(running + d), f_set1(keep)));
}

EMEL_INLINE void divide_into(float* out, const float* running, float sum, size_t head_dim) {
  const F32 inverse = f_set1(1.0f / sum);
  for (size_t d = 0; d < head_dim; d += 16) {
    store_left(out + d, f_mul(f_load(running + d), inverse), lanes_left(d, head_dim));
  }
}

void attention(const AttentionArgs& a) {
  const Tile tile = tile_in(a.scratch, a.head_dim);
  const TileSight sight(a);
  const size_t n_rows = a.n_tokens * a.n_heads;
  gather_queries(a, tile);
  const size_t n_chunks = (sight.end_key(a.n_tokens - 1) - 1) / kChunk + 1;
  for (size_t chunk = sight.first_key(0) / kChunk; chunk < n_chunks; ++chunk) {
    const RowRange rows = attend_chunk(a, tile, chunk);
    for (size_t row = rows.begin; row < rows.end; ++row) {
      float* running = tile.running + row * tile.padded;
      const float* part = tile.chunk + row * tile.padded;
      if (chunk == sight.first_key(row / a.n_heads) / kChunk) {
        memcpy(running, part, tile.padded * sizeof(float));
        tile.running_max[row] = tile.chunk_max[row];
        tile.running_sum[row] = tile.chunk_sum[row];
      } else {
        join(running, tile.running_max + row, tile.running_sum + row, part, tile.chunk_max[row], tile.chunk_sum[row],
             tile.padded);
      }
    }
  }
  for (size_t row = 0; row < n_rows; ++row) {
    const size_t head = a.head + row % a.n_heads;
    float* running = tile.running + row * tile.padded;
    if (a.sinks != nullptr) {
      join_sink(running, tile.running_max + row, tile.running_sum + row, a.sinks[head], tile.padded);
    }
    float* out = a.out + (a.token + row / a.n_heads) * a.row_stride + head * a.head_dim;
    divide_into(out, running, tile.running_sum[row], a.head_dim);
  }
}

void attention_chunk(const AttentionArgs& a, size_t chunk, float* partial, size_t head_stride) {
  const Tile tile = tile_in(a.scratch, a.head_dim);
  gather_queries(a, tile);
  attend_chunk(a, tile, chunk);
  for (size_t row = 0; row < a.n_heads; ++row) {
    float* to = partial + row * head_stride;
    to[0] = tile.chunk_max[row];
    to[1] = tile.chunk_sum[row];
    memcpy(to + 16, tile.chunk + row * tile.padded, tile.padded * sizeof(float));
  }
}

void attention_join(const float* partial, size_t chunk_stride, size_t n_chunks, size_t head_dim, const float* sink,
                    float* out, float* scratch) {
  const size_t padded = round_up(head_dim, 16);
  float max = partial[0];
  float sum = partial[1];
  memcpy(scratch, partial + 16, padded * sizeof(float));
  for (size_t chunk = 1; chunk < n_chunks; ++chunk) {
    const float* part = partial + chunk * chunk_stride;
    join(scratch, &max, &sum, part + 16, part[0], part[1], padded);
  }
  if (sink != nullptr) join_sink(scratch, &max, &sum, *sink, padded);
  divide_into(out, scratch, sum, head_dim);
}

}  // namespace
}  // namespace emel
