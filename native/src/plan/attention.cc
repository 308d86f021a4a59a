// Attention on lanes: tiles of queries taken from a shared counter, or chunks of keys when there are few queries.
#include "plan/attention.h"

namespace emel {
namespace {

static_assert(attention_scratch_floats(kMaxHeadDim) <= kLaneScratchFloats, "a lane's scratch holds every tile");

// The heads that share a kv head, in pieces of at most kAttentionRows.
struct HeadPieces {
  size_t shared;  // heads per kv head
  size_t per_piece;
  size_t n_pieces;  // per kv head
};

HeadPieces head_pieces(const emel_op& op) {
  const size_t shared = op.dim[0] / op.dim[1];
  const size_t per_piece = shared < kAttentionRows ? shared : kAttentionRows;
  return {shared, per_piece, (shared + per_piece - 1) / per_piece};
}

Sight sight_of(const emel_op& op, const QueryTile& tile) {
  const size_t window = op.dim[4];
  if (op.dim[5] != 0) {
    const size_t reach = window == 0 ? kUnlimited : window / 2;
    return {reach, reach, tile.n_keys};
  }
  return {window == 0 ? kUnlimited : window - 1, 0, tile.n_keys};
}

AttentionArgs attention_args(const OpRun& r, const HeadPieces& pieces, const QueryTile& tile, size_t piece) {
  const KvLayout kv(r.run.plan->desc.kv_type, r.op.dim[1], r.op.dim[2]);
  const size_t kv_head = piece / pieces.n_pieces;
  const size_t within = piece % pieces.n_pieces * pieces.per_piece;
  AttentionArgs a{};
  a.q = r.floats(r.op.in[0]);
  a.out = r.floats(r.op.out[0]);
  a.row_stride = size_t{r.op.dim[0]} * r.op.dim[2];
  a.head_dim = r.op.dim[2];
  a.kv = r.kv_layer(r.op.dim[3]) + kv_head * kv.head_bytes;
  a.block_bytes = r.kv_block_bytes();
  a.values_at = kv.values_at;
  a.blocks = r.batch().block_table + size_t{tile.sequence} * r.batch().block_stride;
  a.token = tile.token;
  a.n_tokens = tile.n_tokens;
  a.position = tile.position;
  a.head = kv_head * pieces.shared + within;
  a.n_heads = pieces.shared - within < pieces.per_piece ? pieces.shared - within : pieces.per_piece;
  a.scale = r.op.param[0];
  a.scratch = r.lane.scratch;
  const Sight sight = sight_of(r.op, tile);
  a.keys_before = sight.before;
  a.keys_after = sight.after;
  a.n_keys = sight.n_keys;
  a.cap = r.op.param[1];
  a.sinks = r.optional_vector(0);
  a.kv_type = r.run.plan->desc.kv_type;
  return a;
}

// `next`, from this key on, is likely what the same lane takes after `a`.
void expect(AttentionArgs* a, const AttentionArgs& next, size_t first_key) {
  const size_t first_block = first_key / EMEL_KV_BLOCK;
  a->next_kv = next.kv;
  a->next_blocks = next.blocks + first_block;
  a->n_next_blocks = (next.n_keys + EMEL_KV_BLOCK - 1) / EMEL_KV_BLOCK - first_block;
}

size_t chunks_at(size_t position) { return position / EMEL_ATTENTION_CHUNK + 1; }

// The chunks that a tile of one token sees, [begin, end).
Slice chunks_seen(const emel_op& op, const QueryTile& tile) {
  const Sight sight = sight_of(op, tile);
  return {sight.first_key(tile.position) / EMEL_ATTENTION_CHUNK, chunks_at(sight.end_key(tile.position) - 1)};
}

// A tile's heads that share a kv head. Latest queries first: they see the most keys.
struct TileItem {
  const QueryTile& tile;
  size_t piece;
  TileItem(const OpRun& r, size_t n_pieces, size_t item)
      : tile(r.run.plan->tiles[r.run.n_tiles - 1 - item / n_pieces]), piece(item % n_pieces) {}
};

// Items are taken from a shared counter.
void run_attention_tiles(const OpRun& r, std::atomic<uint32_t>& next) {
  const HeadPieces pieces = head_pieces(r.op);
  const size_t n_pieces = pieces.n_pieces * r.op.dim[1];
  const size_t n_items = r.run.n_tiles * n_pieces;
  for (size_t item = next.fetch_add(1); item < n_items; item = next.fetch_add(1)) {
    const TileItem own(r, n_pieces, item);
    AttentionArgs a = attention_args(r, pieces, own.tile, own.piece);
    if (item + r.lane.n_lanes < n_items) {
      const TileItem after(r, n_pieces, item + r.lane.n_lanes);
      const size_t first_key = sight_of(r.op, after.tile).first_key(after.tile.position);
      expect(&a, attention_args(r, pieces, after.tile, after.piece), first_key);
    }
    r.kernels().attention(a);
  }
}

// A chunk of the keys that one token sees; those it does not see are nothing to do.
struct ChunkItem {
  size_t chunk;
  size_t piece;
  size_t tile_index;
  const QueryTile& tile;
  Slice seen;
  ChunkItem(const OpRun& r, size_t n_pieces, size_t most_chunks, size_t item)
      : chunk(item % most_chunks),
        piece(item / most_chunks % n_pieces),
        tile_index(item / most_chunks / n_pieces),
        tile(r.run.plan->tiles[tile_index]),
        seen(chunks_seen(r.op, tile)) {}
  bool is_seen() const { return chunk >= seen.begin && chunk < seen.end; }
  size_t first_key(const OpRun& r) const {
    const size_t first = sight_of(r.op, tile).first_key(tile.position);
    const size_t of_chunk = chunk * EMEL_ATTENTION_CHUNK;
    return first < of_chunk ? of_chunk : first;
  }
};

// The same numbers with the chunks of one query on several lanes: partials first, joined after all are there.
void run_attention_split(const OpRun& r, std::atomic<uint32_t>& next) {
  const HeadPieces pieces = head_pieces(r.op);
  const size_t n_heads = r.op.dim[0];
  const size_t n_pieces = pieces.n_pieces * r.op.dim[1];
  const size_t record = attention_partial_floats(r.op.dim[2]);
  const size_t max_chunks = chunks_at(size_t{r.run.plan->desc.max_sequence_blocks} * EMEL_KV_BLOCK - 1);
  float* partials = r.floats(r.op.in[1]);  // (tile, head, chunk, record)
  size_t most_chunks = 0;
  for (size_t t = 0; t < r.run.n_tiles; ++t) {
    const size_t n = chunks_seen(r.op, r.run.plan->tiles[t]).end;
    most_chunks = n > most_chunks ? n : most_chunks;
  }
  const size_t n_items = r.run.n_tiles * n_pieces * most_chunks;
  for (size_t item = next.fetch_add(1); item < n_items; item = next.fetch_add(1)) {
    const ChunkItem own(r, n_pieces, most_chunks, item);
    if (!own.is_seen()) continue;
    AttentionArgs a = attention_args(r, pieces, own.tile, own.piece);
    if (item + r.lane.n_lanes < n_items) {
      const ChunkItem after(r, n_pieces, most_chunks, item + r.lane.n_lanes);
      if (after.is_seen()) expect(&a, attention_args(r, pieces, after.tile, after.piece), after.first_key(r));
    }
    float* to = partials + ((own.tile_index * n_heads + a.head) * max_chunks + own.chunk) * record;
    r.kernels().attention_chunk(a, own.chunk, to, max_chunks * record);
  }
  r.run.pool->barrier();
  const float* sinks = r.optional_vector(0);
  const Slice rows = slice_of(r.run.n_tiles * n_heads, r.lane);
  for (size_t row = rows.begin; row < rows.end; ++row) {
    const QueryTile& tile = r.run.plan->tiles[row / n_heads];
    float* out = r.floats(r.op.out[0]) + (tile.token * n_heads + row % n_heads) * r.op.dim[2];
    const Slice seen = chunks_seen(r.op, tile);
    r.kernels().attention_join(partials + (row * max_chunks + seen.begin) * record, record, seen.end - seen.begin,
                               r.op.dim[2], sinks == nullptr ? nullptr : sinks + row % n_heads, out, r.lane.scratch);
  }
}

uint32_t cut(emel_plan* plan, const emel_batch& batch, uint32_t tokens_per_tile) {
  uint32_t n_tiles = 0;
  for (uint32_t i = 0; i < batch.n_tokens; ++i) {
    QueryTile* last = n_tiles == 0 ? nullptr : &plan->tiles[n_tiles - 1];
    const auto sequence = static_cast<uint32_t>(batch.sequences[i]);
    if (last != nullptr && last->sequence == sequence && last->n_tokens < tokens_per_tile) {
      ++last->n_tokens;
    } else {
      plan->tiles[n_tiles++] = {i, 1, static_cast<uint32_t>(batch.positions[i]), sequence, 0};
    }
  }
  for (uint32_t t = n_tiles; t-- > 0;) {
    QueryTile& tile = plan->tiles[t];
    const bool is_last = t + 1 == n_tiles || plan->tiles[t + 1].sequence != tile.sequence;
    tile.n_keys = is_last ? tile.position + tile.n_tokens : plan->tiles[t + 1].n_keys;
  }
  return n_tiles;
}

bool any_long_context(const emel_batch& batch) {
  for (uint32_t i = 0; i < batch.n_tokens; ++i) {
    if (batch.positions[i] >= static_cast<int32_t>(EMEL_ATTENTION_CHUNK)) return true;
  }
  return false;
}

}  // namespace

void cut_tiles(Run* run) {
  run->split_chunks = run->pool->n_lanes > 1 && run->batch->n_tokens <= kSplitTokens && any_long_context(*run->batch);
  run->n_tiles = cut(run->plan, *run->batch, run->split_chunks ? 1 : run->plan->tokens_per_tile);
}

void run_rope_store(const OpRun& r) {
  const Slice tokens = slice_of(r.batch().n_tokens, r.lane);
  if (tokens.begin == tokens.end) return;
  RopeArgs a{};
  a.q = r.floats(r.op.in[0]);
  a.k = r.floats(r.op.in[1]);
  a.v = r.floats(r.op.in[2]);
  a.table = r.floats(r.op.in[3]);
  a.positions = r.batch().positions;
  a.sequences = r.batch().sequences;
  a.block_table = r.batch().block_table;
  a.block_stride = r.batch().block_stride;
  a.kv = r.kv_layer(r.op.dim[5]);
  a.n_heads = r.op.dim[0];
  a.n_kv_heads = r.op.dim[1];
  a.head_dim = r.op.dim[2];
  a.n_rot = r.op.dim[3];
  a.halves = r.op.dim[4] == 1;
  a.q_norm = r.optional_vector(0);
  a.k_norm = r.optional_vector(1);
  a.epsilon = r.op.param[0];
  a.block_bytes = r.kv_block_bytes();
  a.kv_type = r.run.plan->desc.kv_type;
  a.token_begin = tokens.begin;
  a.token_end = tokens.end;
  r.kernels().rope_store(a);
}

void run_attention(const OpRun& r, std::atomic<uint32_t>& next) {
  if (r.run.split_chunks) {
    run_attention_split(r, next);
  } else {
    run_attention_tiles(r, next);
  }
}

}  // namespace emel
