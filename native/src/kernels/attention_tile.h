// A tile of attention: the rows (token, head) that share one kv head, what they see, and the scratch they work in.
#pragma once

// A function of its own: what is inlined throughout becomes one function of so many loops that compiling it takes minutes.
#define EMEL_APART static __attribute__((noinline))

namespace emel {
namespace {

constexpr size_t kChunk = EMEL_ATTENTION_CHUNK;

static_assert(kScoreBlocks * EMEL_KV_BLOCK <= kAttentionStrip, "wide keys need no more room than wide values");

EMEL_INLINE size_t at_least(size_t x, size_t least) { return x > least ? x : least; }
EMEL_INLINE size_t at_most(size_t x, size_t most) { return x < most ? x : most; }

struct Tile {
  float* scores;  // (kAttentionRows, 256)
  float* running;  // (kAttentionRows, padded)
  float* chunk;  // (kAttentionRows, padded)
  float* queries;  // (kAttentionRows, padded)
  float* running_max;  // (kAttentionRows,)
  float* running_sum;
  float* chunk_max;
  float* chunk_sum;
  float* keep;  // (kAttentionRows,): what running and chunk are scaled with to join
  float* take;
  uint8_t* records;  // (kAttentionRows,): the queries as quantised activations, for a Q8_0 cache
  float* wide;  // kScoreBlocks of keys (.., head_dim, 16) or values of kAttentionStrip keys (.., padded) as float32
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
  tile.keep = tile.chunk_sum + kAttentionRows;
  tile.take = tile.keep + kAttentionRows;
  tile.records = reinterpret_cast<uint8_t*>(tile.take + kAttentionRows);
  tile.wide =
      tile.take + kAttentionRows + kAttentionRows * QuantizedLayout(head_dim, kQueryPlanes).bytes() / sizeof(float);
  return tile;
}

struct Range {
  size_t begin;
  size_t end;
};

// Who sees what, in a tile: both ends of what a token sees ascend with the token.
struct TileSight {
  Sight sight;
  size_t position;
  size_t n_tokens;
  EMEL_INLINE_MEMBER explicit TileSight(const AttentionArgs& a)
      : sight{a.keys_before, a.keys_after, a.n_keys}, position(a.position), n_tokens(a.n_tokens) {}
  EMEL_INLINE_MEMBER size_t first_key(size_t token) const { return sight.first_key(position + token); }
  EMEL_INLINE_MEMBER size_t end_key(size_t token) const { return sight.end_key(position + token); }
  // The keys of the chunk at `chunk` that a token sees, counted from there.
  EMEL_INLINE_MEMBER Range keys_within(size_t token, size_t chunk) const {
    return {at_least(first_key(token), chunk) - chunk, at_most(end_key(token), chunk + kChunk) - chunk};
  }
  // The first token whose sight ends behind this key.
  EMEL_INLINE_MEMBER size_t tokens_from(size_t key) const {
    const size_t own = position + sight.after;
    if (key >= sight.n_keys) return n_tokens;
    return key <= own ? 0 : at_most(key - own, n_tokens);
  }
  // How many tokens' sight begins at this key or before.
  EMEL_INLINE_MEMBER size_t tokens_until(size_t key) const {
    const size_t own = key + sight.before + 1;
    return own <= position ? 0 : at_most(own - position, n_tokens);
  }
};

EMEL_INLINE void quantize_query(const float* query, size_t head_dim, uint8_t* record) {
  const QuantizedLayout layout(head_dim, kQueryPlanes);
  for (size_t block = 0; block < layout.n_blocks; ++block) {
    const size_t at = block * kBlock;
    const F32 second = at + 16 < head_dim ? load_left(query + at + 16, lanes_left(at + 16, head_dim)) : f_zero();
    quantize_block(load_left(query + at, lanes_left(at, head_dim)), second, record, layout, block);
  }
}

// The queries of a tile; empty ones behind them as far as score_blocks goes.
EMEL_INLINE void gather_queries(const AttentionArgs& a, const Tile& tile) {
  const size_t n_rows = a.n_tokens * a.n_heads;
  for (size_t token = 0; token < a.n_tokens; ++token) {
    for (size_t head = 0; head < a.n_heads; ++head) {
      const float* from = a.q + (a.token + token) * a.row_stride + (a.head + head) * a.head_dim;
      const size_t row = token * a.n_heads + head;
      if (a.kv_type == EMEL_TYPE_Q8_0) {
        quantize_query(from, a.head_dim, tile.records + row * QuantizedLayout(a.head_dim, kQueryPlanes).bytes());
      } else {
        memcpy(tile.queries + row * tile.padded, from, a.head_dim * sizeof(float));
      }
    }
  }
  for (size_t i = n_rows * tile.padded; i < kScoreRows * tile.padded; i += 16) f_store(tile.queries + i, f_zero());
}

}  // namespace
}  // namespace emel
