/* EMEL's C ABI: the only door between Python and the native library.
 *
 * Rules of this file:
 *   1. Opaque handles, fixed-width integers, plain structs. No exceptions cross it.
 *   2. Every function that can fail returns an emel_status; the text for the failure of the
 *      calling thread is emel_last_error().
 *   3. Pointers are borrowed unless a function's name ends in _create; what _create made,
 *      _destroy frees. Nothing is kept past a call but what a handle's comment says.
 *   4. EMEL_ABI_VERSION is made of the declarations of all emel*.h, so it changes with every one of them and the loader
 *      refuses a library of other declarations (tests/unit/_native/test_abi_version.py says what it has to be).
 */
#ifndef EMEL_H
#define EMEL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define EMEL_API __declspec(dllexport)
#else
#define EMEL_API __attribute__((visibility("default")))
#endif

#define EMEL_ABI_VERSION 0xb70a9739u
/* Changes whenever any result could change (docs/concepts/numerics.md). Plans of either kind of activations have results
 * of their own under the same version. */
#define EMEL_NUMERICS_VERSION 1u

typedef int32_t emel_status;
enum {
  EMEL_OK = 0,
  EMEL_INVALID_ARGUMENT = 1, /* a value outside its documented range */
  EMEL_OUT_OF_MEMORY = 2,
  EMEL_UNSUPPORTED = 3, /* a type, route or operation this build does not have */
  EMEL_OUT_OF_BOUNDS = 4, /* an offset or extent outside the memory it is in */
  EMEL_INTERNAL = 5
};

EMEL_API uint32_t emel_abi_version(void);
EMEL_API uint32_t emel_numerics_version(void);
/* Text of the calling thread's last failure; valid until its next failure. Never NULL. */
EMEL_API const char* emel_last_error(void);
/* Heap allocations made by this library since it was loaded. A plan run adds none. */
EMEL_API uint64_t emel_allocation_count(void);

/* ---- CPU routes ------------------------------------------------------------------------ */

enum {
  EMEL_ISA_SCALAR = 0, /* the specification */
  EMEL_ISA_AVX2 = 1, /* AVX2 + FMA + F16C */
  EMEL_ISA_AVX_VNNI = 2, /* AVX2 + FMA + F16C + AVX-VNNI */
  EMEL_ISA_AVX512_VNNI = 3, /* AVX-512 F/BW/DQ/VL + VNNI */
  EMEL_ISA_AVX512_AMX = 4, /* the same + AMX-TILE and AMX-INT8, which the system must have granted the process */
  EMEL_ISA_NEON_DOT = 5, /* NEON + DotProd */
  EMEL_ISA_NEON_I8MM = 6, /* NEON + DotProd + I8MM */
  EMEL_ISA_COUNT = 7
};

/* Bit i is set when route i is built in and this CPU and operating system can run it. */
EMEL_API uint32_t emel_isa_mask(void);
/* Short name ("scalar", "avx2", ...), or NULL for an unknown route. */
EMEL_API const char* emel_isa_name(int32_t isa);

/* ---- tensor types (GGUF's own ids) ------------------------------------------------------ */

enum {
  EMEL_TYPE_F32 = 0,
  EMEL_TYPE_F16 = 1,
  EMEL_TYPE_Q4_0 = 2,
  EMEL_TYPE_Q4_1 = 3,
  EMEL_TYPE_Q5_0 = 6,
  EMEL_TYPE_Q5_1 = 7,
  EMEL_TYPE_Q8_0 = 8,
  EMEL_TYPE_Q2_K = 10,
  EMEL_TYPE_Q3_K = 11,
  EMEL_TYPE_Q4_K = 12,
  EMEL_TYPE_Q5_K = 13,
  EMEL_TYPE_Q6_K = 14,
  EMEL_TYPE_IQ2_XXS = 16,
  EMEL_TYPE_IQ2_XS = 17,
  EMEL_TYPE_IQ3_XXS = 18,
  EMEL_TYPE_IQ1_S = 19,
  EMEL_TYPE_IQ4_NL = 20,
  EMEL_TYPE_IQ3_S = 21,
  EMEL_TYPE_IQ2_S = 22,
  EMEL_TYPE_IQ4_XS = 23,
  EMEL_TYPE_F64 = 28,
  EMEL_TYPE_IQ1_M = 29,
  EMEL_TYPE_BF16 = 30,
  EMEL_TYPE_TQ1_0 = 34,
  EMEL_TYPE_TQ2_0 = 35,
  EMEL_TYPE_MXFP4 = 39
};

/* ---- lanes ------------------------------------------------------------------------------ */

/* A pool of n_lanes lanes: the caller is lane 0, the others are warm workers that spin for a
 * bounded time and then sleep. One run at a time; a second concurrent run waits its turn. */
typedef struct emel_pool emel_pool;
EMEL_API emel_status emel_pool_create(uint32_t n_lanes, emel_pool** out);
EMEL_API void emel_pool_destroy(emel_pool* pool);
EMEL_API uint32_t emel_pool_n_lanes(const emel_pool* pool);
/* Has the runs from now on use the first n_lanes lanes, 1 to all of them; the others sleep. */
EMEL_API emel_status emel_pool_use(emel_pool* pool, uint32_t n_lanes);
/* Nanoseconds that lanes have waited for one another in runs, where they waited so long that they offered their CPU to
 * others: what a lane without a CPU costs those that have one. Of all lanes, since the pool was made. */
EMEL_API uint64_t emel_pool_waited(const emel_pool* pool);

/* ---- packed weights --------------------------------------------------------------------- */

/* Bytes of a (rows, cols) matrix of a GGUF type in the packed 16-row layout. */
EMEL_API emel_status emel_pack_size(uint32_t type, uint64_t rows, uint64_t cols, uint64_t* n_bytes);

typedef struct emel_pack_job {
  const void* src; /* GGUF rows, each row_bytes(type, cols) long */
  uint64_t src_bytes;
  void* dst; /* 64-byte aligned, emel_pack_size bytes */
  uint64_t dst_bytes;
  uint64_t rows;
  uint64_t cols;
  uint32_t type;
  uint32_t reserved;
} emel_pack_job;

/* Packs all jobs, spread over the pool's lanes. Validates every job before it writes anything. */
EMEL_API emel_status emel_pack(emel_pool* pool, const emel_pack_job* jobs, uint64_t n_jobs);

/* ---- plans ------------------------------------------------------------------------------ */

#define EMEL_NONE UINT64_MAX /* no operand */
#define EMEL_LOGITS (UINT64_MAX - 1) /* the batch's logits buffer */
#define EMEL_NO_WEIGHT UINT32_MAX
#define EMEL_KV_BLOCK 16u /* tokens in a block of the KV cache */
#define EMEL_ATTENTION_CHUNK 256u /* keys in a chunk, aligned to absolute positions */

enum {
  /* out[0] (T, cols) f32 = param[0] * row of weight[0] for each token of the batch, plus the first cols values of
   * weight[2] (its type), plus row `position` of weight[1]: F32, (1, rows * cols), or NO_WEIGHT. A batch with a position
   * that weight[1] has no row for is refused. */
  EMEL_OP_EMBED = 1,
  /* out[0] (T, n_rot) f32: all cosines, then all sines of position * weight[0][i], times param[0] unless that is 0;
   * weight[0] is F64 (1, n_rot/2). */
  EMEL_OP_ROPE_TABLE = 2,
  /* x = in[0] (T, n) f32, plus param[1] (0 stands for 1) times in[1] (T, n) f32 unless NONE, the sum written back to
   * in[0]; out[0] f32 and/or out[1] quantised: x / sqrt(mean(x^2) + param[0]) * weight[0] (F32, n).
   * dim[0] = n. Notes the op's layer for tokens whose values are not finite. */
  EMEL_OP_RMS_NORM = 3,
  /* For p < dim[1]: out[p] (T, weight[p].rows) f32 = weight[p] (rows, cols) . in[0], plus weight[4+p]
   * (F32, rows) unless NO_WEIGHT. in[0] is quantised when the weights are block types, f32 otherwise; all
   * parts are of one kind. dim[0] = cols, dim[1] = n_parts (1..4). out[0] may be EMEL_LOGITS. With
   * dim[3] = 1 the one part is a piece of rows, from dim[2] on, that are as wide as the logits, or dim[4]. Results y then become
   * y * param[0] unless that is 0, then param[1] * tanh(y / param[1]) unless that is 0. */
  EMEL_OP_MATMUL = 4,
  /* Norms each head of in[0] = q (T, n_heads*head_dim) by weight[0] and of in[1] = k (T, n_kv_heads*head_dim) by
   * weight[1] (F32, head_dim; NO_WEIGHT: no norm; param[0] = epsilon), rotates them by the table in[3] (NONE when
   * n_rot is 0), all in place, then stores k and in[2] = v (T, n_kv_heads*head_dim) in the KV cache as its type has them.
   * dim = {n_heads, n_kv_heads (at most the cache's), head_dim, n_rot, pairing (0 adjacent, 1 halves), kv_layer}. */
  EMEL_OP_ROPE_STORE = 5,
  /* out[0] (T, n_heads*head_dim) f32 = attention of in[0] = q over the KV cache; in[1] is scratch of
   * emel_attention_scratch bytes. dim = {n_heads, n_kv_heads, head_dim, kv_layer, window, both ways}. A query at position
   * p sees the keys p - window + 1 .. p (window 0: 0 .. p); both ways (1, else 0), all keys of its sequence, this
   * batch's included, or those at most window / 2 away. param[0] = score scale; param[1] = cap, unless 0 scaled scores
   * become cap * tanh(score / cap). weight[0] (F32, n_heads) unless NO_WEIGHT: sinks, a score of each head that has no
   * value and joins the softmax after the last key. */
  EMEL_OP_ATTENTION = 6,
  /* out[0] quantised = in[0] (T, n) f32. dim[0] = n, dim[2] = rows for each token (0 stands for 1). */
  EMEL_OP_QUANTIZE = 7,
  /* activation(in[0]) * in[1], each (T, n) f32, or without the product when in[1] is NONE; out[0] f32 and/or out[1]
   * quantised. dim[0] = n, dim[2] = rows for each token (0 stands for 1), dim[1] = activation: 0 SiLU, 1 GELU by tanh, 2 GELU by erf, 3 clamped swish of
   * g = min(in[0], param[1]): g / (1 + exp(-param[0] * g)) * (in[1] clamped to +-param[1], plus 1). */
  EMEL_OP_GATED = 8,
  /* out[0] (O, n) f32 = rows of in[0] (T, n) chosen by the batch's output_rows. dim[0] = n. out[0] may be EMEL_LOGITS. */
  EMEL_OP_GATHER = 9,
  /* batch.argmax[i] = lowest index of the largest of logits row i, -1 when the row is not finite. dim[0] = n_vocab. */
  EMEL_OP_ARGMAX = 10,
  /* out[0] = in[0] + param[0] * in[1], each (T, n) f32; with in[2] (T, 1) f32 unless NONE, in[1] is also multiplied by
   * 1 / (1 + exp(-in[2])). out[0] may be in[0]. dim[0] = n. */
  EMEL_OP_ADD = 11,
  /* Gated short convolution of each sequence's tokens: in[0] (T, 3n) f32 holds B, C, x of each; out[0] (T, n) f32 =
   * C * (weight[1] + sum over j < taps of weight[0][j] * product[t - (taps - 1) + j]), product = B * x; weight[0] is F32
   * (1, taps * n), tap by tap, the oldest first, weight[1] F32 (1, n) or NO_WEIGHT. The last k products of a sequence stay
   * in its slot of the batch's state, that of position p in row p mod k, so that a later run may begin up to
   * k - (taps - 1) positions further back; before position 0 there are zeros. dim = {n, taps (1..16), state layer, k (at
   * least taps - 1, and 1)}. */
  EMEL_OP_SHORT_CONV = 12,
  /* Chooses dim[1] = k of dim[0] = n_experts for each row of in[0] (T, n_experts) f32: the largest scores, plus weight[0]
   * (F32, n_experts) unless NO_WEIGHT, ties to the lowest id. Scores by dim[2]: 0 softmax, 1 sigmoid, 2 as they are, with
   * a softmax over those chosen. out[0] (T, k) f32 = scores chosen, in descending order of choice, divided by their sum
   * when dim[3] is 1, times param[0] (0 stands for 1); out[1] = routing, emel_routing_bytes. */
  EMEL_OP_TOP_K = 13,
  /* out[0] (T * k rows) = rows of in[0] (T, n) f32, or quantised when dim[3] is 1, grouped by expert as the routing in[1]
   * says. dim = {n, k, n_experts, quantised}. */
  EMEL_OP_EXPERT_ROWS = 14,
  /* MATMUL of grouped rows, each by its expert's matrix: out[p] (T * k, rows) f32; weight[p] (n_experts * rows, cols) and
   * weight[4+p] (F32, n_experts * rows), expert after expert, rows a multiple of 16. in[0] as MATMUL's, T * k rows;
   * in[1] = routing. dim = {cols, n_parts, k, n_experts}. */
  EMEL_OP_EXPERT_MATMUL = 15,
  /* out[0] (T, n) f32 = sum over the choices of a row, in their order, of in[2] (T, k) f32 times their row of in[0]
   * (T * k, n) f32; in[1] = routing. dim = {n, k, n_experts}. */
  EMEL_OP_EXPERT_SUM = 16,
  /* RMS_NORM with the mean taken off first: x = in[0] + param[1] * in[1] as there; out[0] and/or out[1]:
   * (x - mean) / sqrt(mean((x - mean)^2) + param[0]) * weight[0], plus weight[1] (F32, n) unless NO_WEIGHT. */
  EMEL_OP_LAYER_NORM = 17,
  /* out[0] (O, n) f32 = for each of the batch's output_rows the mean of the rows of in[0] (T, n) that belong to the
   * sequence of that token in this batch, summed in their order. dim[0] = n. out[0] may be EMEL_LOGITS. */
  EMEL_OP_MEAN = 18,
  EMEL_OP_COUNT = 19
};

/* The op works on the batch's n_outputs gathered rows instead of its n_tokens tokens (O for T above). */
#define EMEL_FLAG_OUTPUT_ROWS 1u
/* The next op reads nothing this op writes: lanes need not meet after it. */
#define EMEL_FLAG_NO_BARRIER 2u

/* One record of a plan. in/out are byte offsets into the arena, 64-byte aligned; weight indexes the plan's
 * table. Unused fields: EMEL_NONE, EMEL_NO_WEIGHT, 0. */
typedef struct emel_op {
  uint32_t kind;
  uint32_t flags;
  uint32_t layer;
  uint32_t segment; /* ascending; the weights of a segment can be rebased between runs */
  uint64_t in[4];
  uint64_t out[4];
  uint32_t weight[8];
  uint32_t dim[8];
  float param[4];
} emel_op;

typedef struct emel_weight {
  const void* data; /* packed matrix, or a plain F32/F64 vector when rows == 1 and packed == 0 */
  uint64_t n_bytes;
  uint64_t rows;
  uint64_t cols;
  uint32_t type;
  uint32_t packed;
} emel_weight;

/* What enters a matrix of a block format is quantised to (docs/decisions/0001-two-planes.md). */
enum {
  EMEL_ACTIVATIONS_INT16 = 0, /* whole numbers up to 32512, as two planes of int8 */
  EMEL_ACTIVATIONS_INT8 = 1, /* up to 127, one plane: half the integer products, other and coarser results */
  EMEL_ACTIVATIONS_COUNT = 2
};

typedef struct emel_plan_desc {
  const emel_op* ops;
  uint64_t n_ops;
  const emel_weight* weights; /* data must outlive the plan */
  uint64_t n_weights;
  uint64_t arena_bytes;
  uint32_t max_tokens; /* tokens of the largest batch */
  uint32_t max_outputs;
  uint32_t max_sequences;
  uint32_t n_kv_layers;
  uint32_t n_kv_heads;
  uint32_t head_dim;
  uint32_t n_blocks; /* blocks of the KV cache */
  uint32_t n_vocab;
  int32_t isa;
  uint32_t n_state_layers; /* layers with recurrent state; 0: the next two are of no interest */
  uint32_t state_width; /* float32 values of a slot in a layer */
  uint32_t n_slots;
  uint32_t output_width; /* floats in a row of a batch's logits; 0: n_vocab */
  uint32_t kv_type; /* of the KV cache's numbers: EMEL_TYPE_F16, EMEL_TYPE_F32 or EMEL_TYPE_Q8_0 */
  uint32_t max_sequence_blocks; /* blocks of the longest sequence, at most n_blocks */
  uint32_t activations; /* EMEL_ACTIVATIONS_* of all its quantised values */
} emel_plan_desc;

typedef struct emel_plan emel_plan;

/* Bytes of one token's quantised activation of n values, of a KV cache, of ATTENTION's scratch for sequences of up to
 * n_blocks blocks; 0: more than 2^46, or no type of a KV cache, or unknown activations. */
EMEL_API uint64_t emel_quantized_bytes(uint64_t n, uint32_t activations);
EMEL_API uint64_t emel_kv_bytes(uint64_t n_kv_layers, uint64_t n_blocks, uint64_t n_kv_heads, uint64_t head_dim,
                                uint32_t kv_type);
/* Bytes of a recurrent state (n_slots, n_state_layers, state_width) f32; 0: empty, or more than 2^46. */
EMEL_API uint64_t emel_state_bytes(uint64_t n_state_layers, uint64_t state_width, uint64_t n_slots);
/* Bytes of the routing of n_rows rows to k of n_experts each. */
EMEL_API uint64_t emel_routing_bytes(uint64_t n_rows, uint64_t k, uint64_t n_experts);
EMEL_API uint64_t emel_attention_scratch(uint64_t max_tokens, uint64_t n_heads, uint64_t n_kv_heads, uint64_t head_dim,
                                         uint64_t n_blocks);

/* Copies the records, checks every kind, offset, extent, type and shape; refuses the plan otherwise. */
EMEL_API emel_status emel_plan_create(const emel_plan_desc* desc, emel_plan** out);
EMEL_API void emel_plan_destroy(emel_plan* plan);
/* Points weight index at other bytes of the same type and shape (the streaming window). */
EMEL_API emel_status emel_plan_rebase(emel_plan* plan, uint32_t index, const void* data, uint64_t n_bytes);

typedef struct emel_counters {
  uint64_t dispatches[EMEL_OP_COUNT]; /* ops run, by kind */
  uint64_t matmul_by_type[40]; /* matmul parts run, by GGUF type */
  uint64_t optimized; /* of all ops: run by the kernel meant for the plan's route, or the one that all routes share */
  uint64_t fallback; /* of all ops: run, if only in part, by the scalar kernel although the route is not scalar */
} emel_counters;

typedef struct emel_batch {
  void* arena;
  uint64_t arena_bytes;
  void* kv;
  uint64_t kv_bytes;
  const int32_t* tokens; /* (n_tokens,) ids below n_vocab */
  const int32_t* positions; /* (n_tokens,) consecutive within a sequence */
  const int32_t* sequences; /* (n_tokens,) row of block_table; tokens of one sequence are adjacent, ascending */
  const int32_t* block_table; /* (n_sequences, block_stride) block ids */
  const int32_t* output_rows; /* (n_outputs,) ascending token indices whose logits are wanted */
  float* logits; /* (n_outputs, output_width) */
  int32_t* argmax; /* (n_outputs,) */
  int32_t* bad_layer; /* (n_tokens,) first layer with a value that is not finite, else -1 */
  uint32_t n_tokens;
  uint32_t n_sequences;
  uint32_t n_outputs;
  uint32_t block_stride;
  uint32_t segment_begin; /* run segments [begin, end) */
  uint32_t segment_end;
  float* state; /* recurrent state, 64-byte aligned; may be NULL when the plan has none, as slots */
  uint64_t state_bytes;
  const int32_t* slots; /* (n_sequences,) the slot that holds each sequence's state */
} emel_batch;

/* Runs the plan's segments on the pool's lanes. No allocation; runs that share the plan or the pool take turns.
 * counters may be NULL; it is added to. Lanes set their floating-point environment; the caller's is restored. */
EMEL_API emel_status emel_plan_run(emel_plan* plan, emel_pool* pool, const emel_batch* batch, emel_counters* counters);

/* ---- numerics helpers -------------------------------------------------------------------- */

/* Dequantises n values of a GGUF type to f32 exactly as the format defines (no packing). */
EMEL_API emel_status emel_dequantize(uint32_t type, const void* src, uint64_t src_bytes, float* dst, uint64_t n);
/* inv_freq[i] = base^(-2i/n_rot), i < n_rot/2, by EMEL's own exp and log in double. */
EMEL_API emel_status emel_rope_frequencies(double base, uint32_t n_rot, double* inv_freq);

/* YaRN (arXiv:2309.00071, section 3.2): frequencies that turn more than beta_fast times within the original context
 * stay, those that turn less than beta_slow times are divided by the factor, a ramp lies between. */
typedef struct emel_yarn {
  double base; /* at least 1 (more than 1 for a ramp) */
  double factor; /* at least 1: context over original context */
  double original_context;
  double beta_fast; /* 32 in the paper; more than beta_slow */
  double beta_slow; /* 1 in the paper; more than 0 */
  uint32_t n_rot;
  uint32_t keep_fractions; /* 0: the ends of the ramp are rounded outwards to whole dimensions, as usual */
} emel_yarn;

/* inv_freq has n_rot/2 entries. magnitude, unless NULL, is what cosines and sines are multiplied with:
 * 0.1 * ln(factor) + 1. */
EMEL_API emel_status emel_rope_yarn(const emel_yarn* yarn, double* inv_freq, double* magnitude);
/* LongRoPE's magnitude (arXiv:2402.13753): sqrt(1 + ln(factor) / ln(original_context)), 1 for factors up to 1. */
EMEL_API emel_status emel_rope_long_magnitude(double factor, double original_context, double* magnitude);

/* ---- sampling ---------------------------------------------------------------------------- */

/* Steps of the chain that leads to the next token; a chain names each it takes, in its order. */
enum {
  EMEL_STEP_PENALTIES = 1, /* repeat, presence, frequency */
  EMEL_STEP_DRY = 2,
  EMEL_STEP_TOP_N_SIGMA = 3,
  EMEL_STEP_TOP_K = 4,
  EMEL_STEP_TYPICAL_P = 5,
  EMEL_STEP_TOP_P = 6,
  EMEL_STEP_MIN_P = 7,
  EMEL_STEP_XTC = 8,
  EMEL_STEP_TEMPERATURE = 9
};
enum { EMEL_MAX_STEPS = 16, EMEL_MAX_TOP_LOGPROBS = 20 };

typedef struct emel_logit_bias {
  int32_t token;
  float bias; /* -INFINITY: never */
} emel_logit_bias;

/* Tokens that DRY sees no repetition across: a head, then breaker_tails[tail .. tail + n_tail). */
typedef struct emel_breaker {
  int32_t head;
  uint32_t tail;
  uint32_t n_tail;
} emel_breaker;

typedef struct emel_sampling {
  uint64_t seed;
  uint64_t position; /* the draw's counter: a draw depends on (seed, position) alone; below 2^63 */
  const uint32_t* allowed; /* n_vocab bits, bit i % 32 of word i / 32; NULL: all */
  const emel_logit_bias* biases;
  uint64_t n_biases;
  const int32_t* history; /* the tokens before this one, the oldest first */
  uint64_t n_history;
  const emel_breaker* breakers; /* by ascending head */
  uint64_t n_breakers;
  const int32_t* breaker_tails;
  uint64_t n_breaker_tails;
  float temperature; /* 0: the largest logit, after penalties, biases and allowed */
  float dynatemp_range; /* 0 = off */
  float dynatemp_exponent;
  float top_n_sigma; /* 0 and below = off */
  float typical_p; /* 1 = off */
  float top_p; /* 1 = off */
  float min_p; /* 0 = off */
  float xtc_probability; /* 0 = off */
  float xtc_threshold; /* above 0.5 = off */
  float repeat_penalty; /* 1 = off */
  float presence_penalty;
  float frequency_penalty;
  float dry_multiplier; /* 0 = off */
  float dry_base; /* below 1 = off */
  float mirostat_mu;
  uint32_t mirostat; /* 0 = off, 1 or 2: temperature, then Mirostat, in place of the steps */
  uint32_t top_k; /* 0 = off */
  uint32_t min_keep; /* what top-p, min-p, typical-p and XTC leave at least */
  int32_t repeat_last_n; /* tokens of the history the penalties see; below 0: all */
  int32_t dry_penalty_last_n;
  uint32_t dry_allowed_length;
  uint32_t n_steps;
  uint32_t steps[EMEL_MAX_STEPS];
} emel_sampling;

typedef struct emel_choice {
  int32_t token;
  float surprise; /* -log2 of its probability among what the steps left */
} emel_choice;

/* The next token by logits (n_vocab,), which are left unchanged. allowed and biases come before the steps, the draw after
 * them. scratch holds emel_choose_scratch(n_vocab, n_history) bytes. */
EMEL_API uint64_t emel_choose_scratch(uint64_t n_vocab, uint64_t n_history);
EMEL_API emel_status emel_choose(const float* logits, uint64_t n_vocab, const emel_sampling* sampling, void* scratch,
                                 uint64_t n_scratch_bytes, emel_choice* choice);

/* Natural logarithms of the softmax of logits (n_vocab,): of the token, then of the n_top likeliest, the lowest id first
 * among equals. ids and logprobs hold 1 + n_top values, scratch emel_choose_scratch(n_vocab, 0) bytes. */
EMEL_API emel_status emel_logprobs(const float* logits, uint64_t n_vocab, int32_t token, uint64_t n_top, void* scratch,
                                   uint64_t n_scratch_bytes, int32_t* ids, double* logprobs);

/* ---- roofline ---------------------------------------------------------------------------- */

enum {
  EMEL_ROOF_INT8 = 0, /* int8 multiply-adds a second, in registers */
  EMEL_ROOF_FMA = 1, /* float32 fused multiply-adds a second, in registers */
  EMEL_ROOF_READ = 2, /* bytes read a second */
  EMEL_ROOF_COUNT = 3
};

/* The most that the pool's lanes do of one kind together with a route's instructions, measured for about seconds
 * (at most 60). READ overwrites memory, n_bytes aligned to 64, and reads it again and again: take far more than the
 * caches hold. The other kinds ignore it, and are EMEL_UNSUPPORTED on the scalar route. */
EMEL_API emel_status emel_roofline(emel_pool* pool, int32_t isa, uint32_t kind, void* memory, uint64_t n_bytes,
                                   double seconds, double* result);

#ifdef __cplusplus
}
#endif
#endif
