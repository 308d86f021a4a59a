// What an ISA unit exports: one table of kernels. Kernels work on slices; they know nothing of lanes' ids.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace emel {

struct MatmulArgs {
  const uint8_t* packed;
  const uint8_t* activation;  // quantised records, or float rows
  size_t activation_stride;  // bytes
  float* out;
  size_t out_stride;  // floats
  const float* bias;  // nullptr: none
  size_t rows;
  size_t cols;
  size_t group_begin;  // row groups of this slice
  size_t group_end;
  size_t n_tokens;
  size_t n_planes;  // of quantised activations: 1 or 2
  bool fetches_near;  // weights are fetched from near by too: prefetcher_falls_behind(). No number depends on it.
};

struct NormArgs {
  float* x;  // (n_rows, n)
  const float* delta;  // added to x in place; nullptr: none
  const float* weight;  // (n,)
  float* out;  // (n_rows, n); nullptr: none
  uint8_t* quantized;  // records; nullptr: none
  size_t n;
  size_t row_begin;
  size_t row_end;
  float epsilon;
  int32_t layer;
  int32_t* bad_layer;  // (n_rows,) of these rows' tokens, through token_rows when given
  const int32_t* token_rows;
  float delta_scale;  // delta is multiplied by it; 0 stands for 1
  size_t n_planes;  // of quantized
  const float* bias;  // (n,) of a layer norm; nullptr: none
};

// out = the mean of rows [row_begin, row_end) of in, at least one.
struct MeanArgs {
  const float* in;  // (n_tokens, n)
  float* out;  // (n,)
  size_t n;
  size_t row_begin;
  size_t row_end;
};

// out = x + scale * delta, times 1 / (1 + exp(-gate)) of the row unless gate is nullptr.
struct AddArgs {
  const float* x;  // (n_rows, n)
  const float* delta;
  const float* gate;  // (n_rows,)
  float* out;
  size_t n;
  size_t row_begin;
  size_t row_end;
  float scale;
};

// Elementwise into blocks of 32: item i is block i % n_blocks of row i / n_blocks.
struct BlockArgs {
  const float* first;  // (n_rows, n)
  const float* second;  // gated: multiplied in; nullptr: none
  float* out;  // nullptr: none
  uint8_t* quantized;  // nullptr: none
  size_t n;
  size_t item_begin;
  size_t item_end;
  float alpha;  // of kClampedSwish
  float limit;
  size_t n_planes;  // of quantized
};

// Activations of a gate, as EMEL_OP_GATED numbers them.
enum { kSilu = 0, kGeluTanh = 1, kGeluErf = 2, kClampedSwish = 3, kActivations = 4 };

struct RopeArgs {
  float* q;
  float* k;
  const float* v;
  const float* table;  // (n_tokens, n_rot): cosines, then sines
  const int32_t* positions;
  const int32_t* sequences;
  const int32_t* block_table;
  size_t block_stride;
  uint8_t* kv;  // of this layer
  size_t n_heads;
  size_t n_kv_heads;
  size_t head_dim;
  size_t n_rot;
  size_t token_begin;
  size_t token_end;
  bool halves;  // pairs (i, i + n_rot/2) instead of (2i, 2i+1)
  const float* q_norm;  // (head_dim,) of each query head before it is rotated; nullptr: none
  const float* k_norm;
  float epsilon;
  size_t block_bytes;  // of the cache, which may have more heads than this layer
  uint32_t kv_type;  // EMEL_TYPE_F16, EMEL_TYPE_F32 or EMEL_TYPE_Q8_0
};

constexpr size_t kMostExperts = 1024;

// How the scores of experts become weights, as EMEL_OP_TOP_K numbers it.
enum { kGateSoftmax = 0, kGateSigmoid = 1, kGateSoftmaxOfChosen = 2, kGatings = 3 };

struct TopKArgs {
  const float* logits;  // (n_rows, n_experts)
  const float* bias;  // (n_experts,) added to choose, not to weigh; nullptr: none
  int32_t* ids;  // (n_rows, k)
  float* weights;  // (n_rows, k)
  size_t n_experts;
  size_t k;
  size_t row_begin;
  size_t row_end;
  uint32_t gating;
  bool normalize;
  float scale;
};

struct ExpertSumArgs {
  const float* results;  // (n_rows * k, n), grouped by expert
  const int32_t* places;  // (n_rows, k): the row of results of each choice
  size_t n_places;  // a place from here on is read as 0
  const float* weights;  // (n_rows, k)
  float* out;  // (n_rows, n)
  size_t n;
  size_t k;
  size_t row_begin;
  size_t row_end;
};

constexpr size_t kMostTaps = 16;

// Blocks of 16 channels of a gated short convolution.
struct ConvolutionArgs {
  const float* in;  // (n_tokens, 3 * n): B, C, x
  const float* taps_by_channel;  // (taps, n), the oldest first
  const float* bias;  // (n,) nullptr: none
  float* out;  // (n_tokens, n)
  float* state;  // of this layer, slot 0: (n_kept, n), the product of position p in row p % n_kept
  size_t state_stride;  // floats between slots
  const int32_t* positions;
  const int32_t* sequences;
  const int32_t* slots;  // by sequence
  size_t n;
  size_t taps;
  size_t n_kept;  // at least taps - 1, and 1
  size_t n_tokens;
  size_t block_begin;
  size_t block_end;
};

// Up to rows_of_tile rows: tokens [token, token + n_tokens) of one sequence, heads [head, head + n_heads_of_tile)
// that share one kv head.
struct AttentionArgs {
  const float* q;  // of the first token of the batch
  float* out;
  size_t row_stride;  // floats between tokens in q and out
  size_t head_dim;
  const uint8_t* kv;  // of this layer and kv head, block 0
  size_t block_bytes;
  size_t values_at;
  const int32_t* blocks;  // block table row of the sequence
  size_t token;
  size_t n_tokens;
  size_t position;  // of the first token
  size_t head;
  size_t n_heads;
  float scale;
  float* scratch;  // attention_scratch_floats(head_dim)
  size_t keys_before;  // of its own position that a query sees
  size_t keys_after;
  size_t n_keys;  // of the sequence, stored
  float cap;  // scores become cap * tanh(score / cap); 0: they stay
  const float* sinks;  // (n_heads of the model,) nullptr: none
  uint32_t kv_type;  // EMEL_TYPE_F16, EMEL_TYPE_F32 or EMEL_TYPE_Q8_0
  // What is attended to next, probably: its keys are fetched meanwhile. No number depends on it.
  const uint8_t* next_kv;  // as kv
  const int32_t* next_blocks;  // of its first key on
  size_t n_next_blocks;  // 0: not known
};

constexpr size_t kAttentionRows = 64;
constexpr size_t kAttentionStrip = 64;  // keys whose values are widened at once

constexpr size_t kMaxType = 40;  // GGUF's type ids are below

struct Kernels {
  void (*matmul[kMaxType])(const MatmulArgs&);  // by GGUF type; nullptr: none
  void (*rms_norm)(const NormArgs&);
  void (*layer_norm)(const NormArgs&);
  void (*mean)(const MeanArgs&);
  void (*quantize)(const BlockArgs&);
  bool joins_planes;  // records of two planes hold int16 instead (kernels/layout.h)
  void (*gated[kActivations])(const BlockArgs&);
  void (*rope_store)(const RopeArgs&);
  // All chunks of the tile, joined, into out.
  void (*attention)(const AttentionArgs&);
  // One chunk of one token's heads into partial: per head max, sum, then padded head_dim values (record stride
  // attention_partial_floats).
  void (*attention_chunk)(const AttentionArgs&, size_t chunk, float* partial, size_t head_stride);
  // Joins n_chunks partials (chunk_stride floats apart) of one head in ascending order, then its sink unless nullptr,
  // into out.
  void (*attention_join)(const float* partial, size_t chunk_stride, size_t n_chunks, size_t head_dim, const float* sink,
                         float* out, float* scratch);
  // x * scale, then cap * tanh(x / cap) unless cap is 0, in place.
  void (*adjust)(float* x, size_t n, float scale, float cap);
  void (*add)(const AddArgs&);
  void (*convolution)(const ConvolutionArgs&);
  void (*top_k)(const TopKArgs&);
  void (*expert_sum)(const ExpertSumArgs&);
  // Lowest index of the largest value; -1 when any value is not finite.
  int32_t (*argmax)(const float* values, size_t n);
  // Largest value, for the sampler.
  float (*largest)(const float* values, size_t n);
  // Peaks (emel_roofline). The first two return the multiply-adds they did; nullptr: none for this route.
  uint64_t (*peak_dot)(uint64_t n_rounds);
  uint64_t (*peak_fma)(uint64_t n_rounds);
  // n_bytes, a multiple of 512; fetches_near as of a product's weights.
  void (*peak_read)(const uint8_t* bytes, size_t n_bytes, bool fetches_near);
};

inline constexpr size_t kMaxHeadDim = 512;

// These are called by baseline code alone.
namespace {
constexpr size_t attention_partial_floats(size_t head_dim) { return 16 + (head_dim + 15) / 16 * 16; }
// Scores, running and chunk outputs, gathered queries; maxima, sums, scales; records of queries; a widened strip.
constexpr size_t attention_scratch_floats(size_t head_dim) {
  const size_t padded = (head_dim + 15) / 16 * 16;
  return kAttentionRows * (256 + 3 * padded + 6 + padded + 16) + kAttentionStrip * padded;
}
}  // namespace

extern const Kernels kKernelsScalar;
extern const Kernels kKernelsAvx2;
extern const Kernels kKernelsAvxVnni;
extern const Kernels kKernelsAvx512Vnni;
extern const Kernels kKernelsAvx512Amx;
extern const Kernels kKernelsNeonDot;
extern const Kernels kKernelsNeonI8mm;

}  // namespace emel
