// Grouped-query attention over the paged KV cache.
//
// Keys are walked in chunks of 256 aligned to absolute positions. In a chunk: one lane is one key for scores
// (d ascending), softmax sums in sixteen interleaved partial sums (key % 16), values accumulate key by key; keys
// that the query does not see take no part at all. Chunk results join in ascending order, a sink after them. So neither
// the batch, the prefill chunking nor the lanes can change a bit.
//
// Rows of several tokens share blocks widened to float32; the rows of one token read the cache as it is.
#pragma once

namespace emel {
namespace {

constexpr size_t kBlocksPerChunk = kChunk / EMEL_KV_BLOCK;

template <class Block>
EMEL_INLINE Block block_of(const AttentionArgs& a, size_t key) {
  const size_t block = static_cast<size_t>(a.blocks[key / EMEL_KV_BLOCK]);
  return Block(KvLayout(a.kv_type, 1, a.head_dim), a.kv + block * a.block_bytes);
}

// The values of a strip of keys, [begin, end), for all rows that see any of them.
template <class Block>
EMEL_INLINE void attend_strip(const AttentionArgs& a, const TileSight& s, const Tile& tile, Range strip, size_t chunk) {
  for (size_t key = strip.begin; key < strip.end; key += EMEL_KV_BLOCK) {
    widen_values(block_of<Block>(a, key), tile.wide + (key - strip.begin) * tile.padded);
  }
  const Range seeing{s.tokens_from(strip.begin), s.tokens_until(strip.end - 1)};
  Range full{s.tokens_from(strip.end - 1), s.tokens_until(strip.begin)};  // tokens that see all of it
  if (full.begin >= full.end) full = {seeing.end, seeing.end};
  add_wide_tile<kValueRows>(tile, tile.wide, full.begin * a.n_heads, full.end * a.n_heads, strip.begin - chunk,
                            strip.end - strip.begin);
  for (size_t token = seeing.begin; token < seeing.end; ++token) {
    if (token == full.begin && full.begin < full.end) token = full.end;
    if (token >= seeing.end) break;
    const size_t from = at_least(s.first_key(token), strip.begin);
    const size_t to = at_most(s.end_key(token), strip.end);
    const size_t row = token * a.n_heads;
    add_wide_tile<kValueRows>(tile, tile.wide + (from - strip.begin) * tile.padded, row, row + a.n_heads, from - chunk,
                              to - from);
  }
}

// Keys of the chunk that any row of the tile sees, from the border of a block on; their tokens in `tokens`.
EMEL_INLINE Range keys_of_chunk(const TileSight& s, size_t chunk, Range* tokens) {
  *tokens = {s.tokens_from(chunk), s.tokens_until(chunk + kChunk - 1)};
  if (tokens->begin >= tokens->end) return {0, 0};
  return {at_least(s.first_key(tokens->begin) / EMEL_KV_BLOCK * EMEL_KV_BLOCK, chunk),
          at_most(s.end_key(tokens->end - 1), chunk + kChunk)};
}

// Scores of these keys for the rows that see any key of the same blocks.
template <class Block>
EMEL_INLINE void score_keys(const AttentionArgs& a, const TileSight& s, const Tile& tile, Range keys, float* scores) {
  constexpr size_t kKeys = kScoreBlocks * EMEL_KV_BLOCK;
  size_t key = keys.begin;
  alignas(Block) uint8_t memory[kScoreBlocks * sizeof(Block)];
  Block* blocks = reinterpret_cast<Block*>(memory);
  for (; key + kKeys <= round_up(keys.end, EMEL_KV_BLOCK); key += kKeys) {
    for (size_t b = 0; b < kScoreBlocks; ++b) blocks[b] = block_of<Block>(a, key + b * EMEL_KV_BLOCK);
    const Range seeing{s.tokens_from(key) * a.n_heads, s.tokens_until(key + kKeys - 1) * a.n_heads};
    score_blocks<kScoreBlocks>(a, tile, blocks, seeing, scores + (key - keys.begin));
  }
  for (; key < keys.end; key += EMEL_KV_BLOCK) {
    const Block block = block_of<Block>(a, key);
    const Range seeing{s.tokens_from(key) * a.n_heads, s.tokens_until(key + EMEL_KV_BLOCK - 1) * a.n_heads};
    score_blocks<1>(a, tile, &block, seeing, scores + (key - keys.begin));
  }
}

// All maxima first: what a maximum waits for is then over before its row's exponentials begin.
EMEL_APART void softmax_rows(const AttentionArgs& a, const TileSight& s, const Tile& tile, Range tokens, size_t chunk) {
  for (size_t token = tokens.begin; token < tokens.end; ++token) {
    const Range keys = s.keys_within(token, chunk);
    for (size_t row = token * a.n_heads; row < (token + 1) * a.n_heads; ++row) {
      tile.chunk_max[row] = largest_score(tile.scores + row * kChunk, keys.begin, keys.end, a.cap);
    }
  }
  for (size_t token = tokens.begin; token < tokens.end; ++token) {
    const Range keys = s.keys_within(token, chunk);
    for (size_t row = token * a.n_heads; row < (token + 1) * a.n_heads; ++row) {
      tile.chunk_sum[row] = weigh_scores(tile.scores + row * kChunk, keys.begin, keys.end, tile.chunk_max[row]);
    }
  }
}

// Max, sum and values of the chunk that begins at this key for the rows of the tile that see any key of it, which it
// returns.
template <class Block>
EMEL_APART Range attend_chunk(const AttentionArgs& a, const TileSight& s, const Tile& tile, size_t chunk) {
  Range tokens;
  const Range keys = keys_of_chunk(s, chunk, &tokens);
  if (keys.begin >= keys.end) return {0, 0};
  const Range rows{tokens.begin * a.n_heads, tokens.end * a.n_heads};
  score_keys<Block>(a, s, tile, keys, tile.scores + (keys.begin - chunk));
  softmax_rows(a, s, tile, tokens, chunk);
  for (size_t i = rows.begin * tile.padded; i < rows.end * tile.padded; i += 16) f_store(tile.chunk + i, f_zero());
  for (size_t key = keys.begin; key < keys.end; key += kAttentionStrip) {
    attend_strip<Block>(a, s, tile, {key, at_most(key + kAttentionStrip, keys.end)}, chunk);
  }
  return rows;
}

// The same for the heads of one token, at most kScoreRows.
template <class Block>
EMEL_APART Range attend_chunk_of_token(const AttentionArgs& a, const TileSight& s, const Tile& tile, size_t chunk) {
  Range token;
  const Range keys = keys_of_chunk(s, chunk, &token);
  if (keys.begin >= keys.end) return {0, 0};
  alignas(Block) uint8_t memory[kBlocksPerChunk * sizeof(Block)];
  Block* blocks = reinterpret_cast<Block*>(memory);
  size_t n_blocks = 0;
  for (size_t key = keys.begin; key < keys.end; key += EMEL_KV_BLOCK) blocks[n_blocks++] = block_of<Block>(a, key);
  const size_t column = keys.begin - chunk;
  score_token(a, tile, blocks, n_blocks, tile.scores + column);
  softmax_rows(a, s, tile, token, chunk);
  for (size_t i = 0; i < a.n_heads * tile.padded; i += 16) f_store(tile.chunk + i, f_zero());
  add_token<Block, kValueRows>(a, tile, blocks, 0, tile.scores + column,
                               at_least(s.first_key(0), keys.begin) - keys.begin, keys.end - keys.begin);
  return {0, a.n_heads};
}

template <class Block>
EMEL_INLINE Range attend_blocks(const AttentionArgs& a, const TileSight& s, const Tile& tile, size_t chunk) {
  const bool is_token = a.n_tokens == 1 && a.n_heads <= kScoreRows;
  return is_token ? attend_chunk_of_token<Block>(a, s, tile, chunk) : attend_chunk<Block>(a, s, tile, chunk);
}

EMEL_INLINE Range attend(const AttentionArgs& a, const TileSight& s, const Tile& tile, size_t chunk) {
  if (a.kv_type == EMEL_TYPE_Q8_0) return attend_blocks<Q8Block>(a, s, tile, chunk);
  if (a.kv_type == EMEL_TYPE_F32) return attend_blocks<FloatBlock<float>>(a, s, tile, chunk);
  return attend_blocks<FloatBlock<uint16_t>>(a, s, tile, chunk);
}

// With more keys of its own as what comes next.
EMEL_INLINE AttentionArgs followed_by(AttentionArgs a, Range keys) {
  a.next_kv = a.kv;
  a.next_blocks = a.blocks + keys.begin / EMEL_KV_BLOCK;
  a.n_next_blocks = (keys.end - keys.begin + EMEL_KV_BLOCK - 1) / EMEL_KV_BLOCK;
  return a;
}

void attention(const AttentionArgs& a) {
  const Tile tile = tile_in(a.scratch, a.head_dim);
  const TileSight s(a);
  gather_queries(a, tile);
  const size_t end = s.end_key(a.n_tokens - 1);
  for (size_t chunk = s.first_key(0) / kChunk * kChunk; chunk < end; chunk += kChunk) {
    const Range rows = attend(chunk + kChunk < end ? followed_by(a, {chunk + kChunk, end}) : a, s, tile, chunk);
    size_t token = rows.begin / a.n_heads;  // the first whose sight begins in this chunk
    while (token * a.n_heads < rows.end && s.first_key(token) < chunk) ++token;
    join_rows(tile, rows.begin, token * a.n_heads);
    begin_rows(tile, token * a.n_heads, rows.end);
  }
  for (size_t row = 0; row < a.n_tokens * a.n_heads; ++row) {
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
  attend(a, TileSight(a), tile, chunk * kChunk);
  for (size_t row = 0; row < a.n_heads; ++row) {
    float* to = partial + row * head_stride;
    to[0] = tile.chunk_max[row];
    to[1] = tile.chunk_sum[row];
    memcpy(to + 16, tile.chunk + row * tile.padded, tile.padded * sizeof(float));
  }
}

void attention_join(const float* partial, size_t chunk_stride, size_t n_chunks, size_t head_dim, const float* sink,
                    float* out, float* scratch) {
  const Tile tile = tile_in(scratch, head_dim);
  for (size_t chunk = 0; chunk < n_chunks; ++chunk) {
    const float* part = partial + chunk * chunk_stride;
    tile.chunk_max[0] = part[0];
    tile.chunk_sum[0] = part[1];
    memcpy(tile.chunk, part + 16, tile.padded * sizeof(float));
    if (chunk == 0) {
      begin_rows(tile, 0, 1);
    } else {
      join_rows(tile, 0, 1);
    }
  }
  if (sink != nullptr) join_sink(tile.running, tile.running_max, tile.running_sum, *sink, tile.padded);
  divide_into(out, tile.running, tile.running_sum[0], head_dim);
}

}  // namespace
}  // namespace emel
