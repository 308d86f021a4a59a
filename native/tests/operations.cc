// Digests of operations by small plans: each case is a few records, run on seeded data in two batches.
#include "cases.h"
#include "plan/plan.h"

namespace emel_cases {
namespace {

constexpr size_t kMostOps = 8;
constexpr size_t kMostWeights = 8;

// Records, weights and an arena; the inputs of a run are drawn anew for every batch.
class SmallPlan {
 public:
  SmallPlan(const emel::Kernels& kernels, emel_pool* pool, uint64_t seed)
      : random{seed}, kernels_(kernels), pool_(pool) {
    desc.max_tokens = kMostTokens;
    desc.max_outputs = 1;
    desc.max_sequences = 2;
    desc.n_vocab = 8;
    desc.n_blocks = (kMostTokens + 15) / 16;
    desc.kv_type = EMEL_TYPE_F16;
    desc.isa = EMEL_ISA_SCALAR;  // verified for it, run by the kernels given
  }
  ~SmallPlan() {
    for (size_t i = 0; i < desc.n_weights; ++i) free(const_cast<void*>(weights_[i].data));
  }
  SmallPlan(const SmallPlan&) = delete;
  SmallPlan& operator=(const SmallPlan&) = delete;

  static constexpr uint32_t kMostTokens = 600;

  uint64_t place(uint64_t row_bytes, uint64_t rows = kMostTokens) {
    const uint64_t offset = desc.arena_bytes;
    desc.arena_bytes += (row_bytes * rows + 63) / 64 * 64;
    return offset;
  }
  emel_op& add(uint32_t kind) {
    emel_op& op = ops_[desc.n_ops++];
    op = emel_op{};
    op.kind = kind;
    for (uint64_t& offset : op.in) offset = EMEL_NONE;
    for (uint64_t& offset : op.out) offset = EMEL_NONE;
    for (uint32_t& index : op.weight) index = EMEL_NO_WEIGHT;
    return op;
  }
  // A plain vector of random values around centre.
  uint32_t vector(size_t n, float centre = 0.0f) {
    auto* values = static_cast<float*>(allocate(n * 4));
    for (size_t i = 0; i < n; ++i) values[i] = centre + random.value();
    return weight(values, n * 4, n, EMEL_TYPE_F32);
  }
  // A packed F32 matrix.
  uint32_t matrix(uint64_t rows, uint64_t cols) {
    uint64_t n_bytes = 0;
    require(emel_pack_size(EMEL_TYPE_F32, rows, cols, &n_bytes));
    Bytes source(rows * cols * 4);
    for (uint64_t i = 0; i < rows * cols; ++i) source.floats()[i] = random.value();
    void* packed = allocate(n_bytes);
    const emel_pack_job job{source.data, rows * cols * 4, packed, n_bytes, rows, cols, EMEL_TYPE_F32, 0};
    require(emel_pack(pool_, &job, 1));
    weights_[desc.n_weights] = {packed, n_bytes, rows, cols, EMEL_TYPE_F32, 1};
    return static_cast<uint32_t>(desc.n_weights++);
  }
  uint32_t frequencies(uint32_t n_rot) {
    auto* values = static_cast<double*>(allocate(n_rot / 2 * 8));
    require(emel_rope_frequencies(10000.0, n_rot, values));
    return weight(values, n_rot / 2 * 8, n_rot / 2, EMEL_TYPE_F64);
  }

  // Batches of n_first and n_then tokens of one sequence; inputs are the (offset, width) to be drawn for each. The
  // digest of (n_then, width) at out, which are records of n_quantized values unless that is 0.
  uint64_t run(const uint64_t (*inputs)[2], size_t n_inputs, uint64_t out, uint64_t out_row_bytes, uint32_t n_first,
               uint32_t n_then, uint32_t n_quantized = 0) {
    desc.ops = ops_;
    desc.weights = weights_;
    desc.max_sequence_blocks = desc.n_blocks;
    emel_plan* plan = nullptr;
    require(emel_plan_create(&desc, &plan));
    plan->kernels = &kernels_;
    Bytes arena(desc.arena_bytes);
    Bytes kv(emel_kv_bytes(desc.n_kv_layers, desc.n_blocks, desc.n_kv_heads, desc.head_dim, desc.kv_type));
    memset(kv.data, 0xff, kv.size);  // NaN wherever nothing was stored
    Bytes state(emel_state_bytes(desc.n_state_layers, desc.state_width, desc.n_slots));
    memset(state.data, 0xff, state.size);
    Bytes positions(kMostTokens * 4);
    Bytes zeros(kMostTokens * 4);
    Bytes bad(kMostTokens * 4);
    Bytes blocks((desc.n_blocks + 1) * 4);
    for (uint32_t b = 0; b < desc.n_blocks; ++b) blocks.ints()[b] = static_cast<int32_t>(desc.n_blocks - 1 - b);
    emel_batch batch{};
    batch.arena = arena.data;
    batch.arena_bytes = arena.size;
    batch.kv = kv.data;
    batch.kv_bytes = kv.size;
    batch.tokens = zeros.ints();
    batch.positions = positions.ints();
    batch.sequences = zeros.ints();
    batch.block_table = blocks.ints();
    batch.bad_layer = bad.ints();
    batch.n_sequences = 1;
    batch.block_stride = desc.n_blocks;
    batch.segment_end = 1;
    batch.state = state.floats();
    batch.state_bytes = state.size;
    batch.slots = zeros.ints();
    uint32_t done = 0;
    const uint32_t steps[2] = {n_first, n_then};
    for (const uint32_t n : steps) {
      if (n == 0) continue;
      for (uint32_t i = 0; i < n; ++i) positions.ints()[i] = static_cast<int32_t>(done + i);
      for (size_t i = 0; i < n_inputs; ++i) {
        auto* values = reinterpret_cast<float*>(arena.data + inputs[i][0]);
        for (size_t j = 0; j < n * inputs[i][1]; ++j) values[j] = random.value() * 3.0f;
      }
      batch.n_tokens = n;
      require(emel_plan_run(plan, pool_, &batch, &counters));
      done += n;
    }
    emel_plan_destroy(plan);
    if (n_quantized != 0) {
      return records_digest(kernels_, arena.data + out, emel::QuantizedLayout(n_quantized, 2), n_then);
    }
    return fnv1a(arena.data + out, n_then * out_row_bytes);
  }

  emel_plan_desc desc{};
  Random random;
  emel_counters counters{};

 private:
  static void* allocate(size_t n_bytes) {
    void* memory = nullptr;
    if (posix_memalign(&memory, 64, n_bytes) != 0) abort();
    return memory;
  }
  uint32_t weight(const void* data, uint64_t n_bytes, uint64_t n, uint32_t type) {
    weights_[desc.n_weights] = {data, n_bytes, 1, n, type, 0};
    return static_cast<uint32_t>(desc.n_weights++);
  }

  const emel::Kernels& kernels_;
  emel_pool* pool_;
  emel_op ops_[kMostOps];
  emel_weight weights_[kMostWeights];
};

// ROPE_STORE and ATTENTION over one KV layer.
struct AttentionCase {
  const char* name;
  uint32_t n_heads, n_kv_heads, head_dim, n_past, n_tokens;
  bool norms;
  uint32_t window;
  uint32_t both_ways;
  float cap;
  bool sinks;
  float magnitude;
  uint32_t kv_type = EMEL_TYPE_F16;
};

void digest_attention(const emel::Kernels& kernels, emel_pool* pool, const AttentionCase& c) {
  SmallPlan plan(kernels, pool, c.head_dim * 131u + c.n_past);
  const uint64_t q_width = uint64_t{c.n_heads} * c.head_dim;
  const uint64_t kv_width = uint64_t{c.n_kv_heads} * c.head_dim;
  plan.desc.kv_type = c.kv_type;
  plan.desc.n_kv_layers = 1;
  plan.desc.n_kv_heads = c.n_kv_heads;
  plan.desc.head_dim = c.head_dim;
  plan.desc.n_blocks = (c.n_past + c.n_tokens + 15) / 16 + 1;
  const uint64_t q = plan.place(q_width * 4);
  const uint64_t k = plan.place(kv_width * 4);
  const uint64_t v = plan.place(kv_width * 4);
  const uint64_t out = plan.place(q_width * 4);
  const uint64_t table = plan.place(uint64_t{c.head_dim} * 4);
  const uint64_t scratch = plan.place(
      emel_attention_scratch(SmallPlan::kMostTokens, c.n_heads, c.n_kv_heads, c.head_dim, plan.desc.n_blocks), 1);
  emel_op& rope = plan.add(EMEL_OP_ROPE_TABLE);
  rope.out[0] = table;
  rope.weight[0] = plan.frequencies(c.head_dim);
  rope.param[0] = c.magnitude;
  emel_op& store = plan.add(EMEL_OP_ROPE_STORE);
  const uint64_t stored[4] = {q, k, v, table};
  memcpy(store.in, stored, sizeof stored);
  const uint32_t store_dims[6] = {c.n_heads, c.n_kv_heads, c.head_dim, c.head_dim, 1, 0};
  memcpy(store.dim, store_dims, sizeof store_dims);
  if (c.norms) {
    store.weight[0] = plan.vector(c.head_dim, 1.0f);
    store.weight[1] = plan.vector(c.head_dim, 1.0f);
    store.param[0] = 1e-6f;
  }
  emel_op& attention = plan.add(EMEL_OP_ATTENTION);
  attention.in[0] = q;
  attention.in[1] = scratch;
  attention.out[0] = out;
  const uint32_t dims[6] = {c.n_heads, c.n_kv_heads, c.head_dim, 0, c.window, c.both_ways};
  memcpy(attention.dim, dims, sizeof dims);
  attention.param[0] = 0.125f;
  attention.param[1] = c.cap;
  if (c.sinks) attention.weight[0] = plan.vector(c.n_heads);
  const uint64_t inputs[3][2] = {{q, q_width}, {k, kv_width}, {v, kv_width}};
  report(c.name, c.head_dim, c.n_past, c.n_tokens, plan.run(inputs, 3, out, q_width * 4, c.n_past, c.n_tokens));
}

void digest_sums(const emel::Kernels& kernels, emel_pool* pool, uint32_t n) {
  SmallPlan plan(kernels, pool, n);
  const uint64_t x = plan.place(n * 4);
  const uint64_t y = plan.place(n * 4);
  const uint64_t gate = plan.place(4);
  const uint64_t out = plan.place(n * 4);
  emel_op& add = plan.add(EMEL_OP_ADD);
  add.in[0] = x;
  add.in[1] = y;
  add.in[2] = gate;
  add.out[0] = out;
  add.dim[0] = n;
  add.param[0] = 0.22f;
  emel_op& norm = plan.add(EMEL_OP_RMS_NORM);
  norm.in[0] = out;
  norm.in[1] = y;
  norm.out[0] = x;
  norm.weight[0] = plan.vector(n);
  norm.dim[0] = n;
  norm.param[0] = 1e-5f;
  norm.param[1] = 0.7f;
  const uint64_t inputs[3][2] = {{x, n}, {y, n}, {gate, 1}};
  report("add", n, 0, 0, plan.run(inputs, 3, out, n * 4, 0, 5));
  report("norm_of_scaled", n, 0, 0, plan.run(inputs, 3, x, n * 4, 0, 5));
}

void digest_layer_norm(const emel::Kernels& kernels, emel_pool* pool, uint32_t n, bool biased) {
  SmallPlan plan(kernels, pool, n * 3u + biased);
  const uint64_t x = plan.place(n * 4);
  const uint64_t y = plan.place(n * 4);
  const uint64_t out = plan.place(n * 4);
  const uint64_t records = plan.place(emel_quantized_bytes(n, EMEL_ACTIVATIONS_INT16));
  emel_op& norm = plan.add(EMEL_OP_LAYER_NORM);
  norm.in[0] = x;
  if (biased) norm.in[1] = y;
  norm.out[0] = out;
  norm.out[1] = records;
  norm.weight[0] = plan.vector(n, 1.0f);
  if (biased) norm.weight[1] = plan.vector(n);
  norm.dim[0] = n;
  norm.param[0] = 1e-12f;
  norm.param[1] = 0.7f;
  const uint64_t inputs[2][2] = {{x, n}, {y, n}};
  report("layer_norm", n, biased, 0, plan.run(inputs, 2, out, n * 4, 0, 5));
  report("layer_norm_q", n, biased, 0,
         plan.run(inputs, 2, records, emel_quantized_bytes(n, EMEL_ACTIVATIONS_INT16), 0, 5, n));
}

void digest_mean(const emel::Kernels& kernels, size_t n, size_t n_rows) {
  Random random{n + n_rows};
  Bytes in(n * n_rows * 4);
  Bytes out(n * 4);
  for (size_t i = 0; i < n * n_rows; ++i) in.floats()[i] = random.value();
  kernels.mean({in.floats(), out.floats(), n, 1, n_rows});
  report("mean", n, n_rows, 0, fnv1a(out.data, n * 4));
}

// Whether a table with one kernel of the specification in it, the only one that runs, is found out.
void digest_counters(const emel::Kernels& kernels, emel_pool* pool) {
  if (kernels.add == emel::kKernelsScalar.add) return;
  emel::Kernels mixed = kernels;
  mixed.add = emel::kKernelsScalar.add;
  const emel::Kernels* tables[2] = {&kernels, &mixed};
  for (const emel::Kernels* table : tables) {
    SmallPlan plan(*table, pool, 1);
    const uint64_t x = plan.place(64);
    emel_op& op = plan.add(EMEL_OP_ADD);
    op.in[0] = op.in[1] = op.out[0] = x;
    op.dim[0] = 16;
    const uint64_t inputs[1][2] = {{x, 16}};
    plan.run(inputs, 1, x, 64, 0, 2);
    const uint64_t expected = table == &mixed ? 1 : 0;
    if (plan.counters.fallback != expected || plan.counters.optimized != 1 - expected) {
      fprintf(stderr, "emel_digest: fallbacks are not counted\n");
      exit(1);
    }
  }
}

void digest_adjust(const emel::Kernels& kernels, size_t n, float cap) {
  Random random{n};
  Bytes x(n * 4);
  for (size_t i = 0; i < n; ++i) x.floats()[i] = random.value() * 40.0f;
  kernels.adjust(x.floats(), n, 0.3f, cap);
  report("adjust", n, cap == 0.0f ? 0 : 1, 0, fnv1a(x.data, n * 4));
}

void digest_convolution(const emel::Kernels& kernels, emel_pool* pool, uint32_t n, uint32_t taps, uint32_t n_past) {
  SmallPlan plan(kernels, pool, n * 7u + taps);
  plan.desc.n_state_layers = 1;
  plan.desc.state_width = taps * n;
  plan.desc.n_slots = 1;
  const uint64_t x = plan.place(n * 12);
  const uint64_t out = plan.place(n * 4);
  emel_op& op = plan.add(EMEL_OP_SHORT_CONV);
  op.in[0] = x;
  op.out[0] = out;
  op.weight[0] = plan.vector(taps * n);
  if (taps % 2 == 1) op.weight[1] = plan.vector(n);
  op.dim[0] = n;
  op.dim[1] = taps;
  op.dim[3] = taps;
  const uint64_t inputs[1][2] = {{x, n * 3}};
  report("short_conv", n, taps, n_past, plan.run(inputs, 1, out, n * 4, n_past, 6));
}

void digest_experts(const emel::Kernels& kernels, emel_pool* pool, uint32_t n_experts, uint32_t k, uint32_t gating) {
  constexpr uint32_t kCols = 40;
  constexpr uint32_t kRows = 48;
  SmallPlan plan(kernels, pool, n_experts * 11u + gating);
  const uint64_t x = plan.place(kCols * 4);
  const uint64_t logits = plan.place(n_experts * 4);
  const uint64_t weights = plan.place(k * 4);
  const uint64_t routing = plan.place(emel_routing_bytes(SmallPlan::kMostTokens, k, n_experts), 1);
  const uint64_t grouped = plan.place(k * kCols * 4);
  const uint64_t results = plan.place(k * kRows * 4);
  const uint64_t out = plan.place(kRows * 4);
  emel_op& choice = plan.add(EMEL_OP_TOP_K);
  choice.in[0] = logits;
  choice.out[0] = weights;
  choice.out[1] = routing;
  choice.weight[0] = plan.vector(n_experts);
  const uint32_t choice_dims[4] = {n_experts, k, gating, 1};
  memcpy(choice.dim, choice_dims, sizeof choice_dims);
  emel_op& rows = plan.add(EMEL_OP_EXPERT_ROWS);
  rows.in[0] = x;
  rows.in[1] = routing;
  rows.out[0] = grouped;
  const uint32_t rows_dims[4] = {kCols, k, n_experts, 0};
  memcpy(rows.dim, rows_dims, sizeof rows_dims);
  emel_op& product = plan.add(EMEL_OP_EXPERT_MATMUL);
  product.in[0] = grouped;
  product.in[1] = routing;
  product.out[0] = results;
  product.weight[0] = plan.matrix(uint64_t{n_experts} * kRows, kCols);
  product.weight[4] = plan.vector(size_t{n_experts} * kRows);
  const uint32_t product_dims[4] = {kCols, 1, k, n_experts};
  memcpy(product.dim, product_dims, sizeof product_dims);
  emel_op& sum = plan.add(EMEL_OP_EXPERT_SUM);
  sum.in[0] = results;
  sum.in[1] = routing;
  sum.in[2] = weights;
  sum.out[0] = out;
  const uint32_t sum_dims[3] = {kRows, k, n_experts};
  memcpy(sum.dim, sum_dims, sizeof sum_dims);
  const uint64_t inputs[2][2] = {{x, kCols}, {logits, n_experts}};
  report("top_k", n_experts, k, gating, plan.run(inputs, 2, weights, k * 4, 0, 23));
  report("experts", n_experts, k, gating, plan.run(inputs, 2, out, kRows * 4, 0, 23));
}

void digest_yarn() {
  emel_yarn yarn{1e6, 4.0, 32768.0, 32.0, 1.0, 128, 0};
  double out[65];
  require(emel_rope_yarn(&yarn, out, out + 64));
  report("yarn", 128, 0, 0, fnv1a(out, sizeof out));
  yarn.keep_fractions = 1;
  require(emel_rope_yarn(&yarn, out, out + 64));
  report("yarn", 128, 1, 0, fnv1a(out, sizeof out));
  require(emel_rope_long_magnitude(32.0, 4096.0, out));
  report("long_magnitude", 0, 0, 0, fnv1a(out, sizeof out[0]));
}

void digest_gated(const emel::Kernels& kernels, emel_pool* pool, uint32_t activation, bool gated, uint32_t n) {
  SmallPlan plan(kernels, pool, n * 17u + activation);
  const uint64_t x = plan.place(n * 4);
  const uint64_t y = plan.place(n * 4);
  const uint64_t out = plan.place(n * 4);
  const uint64_t records = plan.place(emel_quantized_bytes(n, EMEL_ACTIVATIONS_INT16));
  emel_op& op = plan.add(EMEL_OP_GATED);
  op.in[0] = x;
  if (gated) op.in[1] = y;
  op.out[0] = out;
  op.out[1] = records;
  op.dim[0] = n;
  op.dim[1] = activation;
  op.param[0] = 1.702f;
  op.param[1] = 2.0f;
  const uint64_t inputs[2][2] = {{x, n}, {y, n}};
  report(gated ? "gated_as" : "activation", n, activation, 0, plan.run(inputs, 2, out, n * 4, 0, 40));
  const uint64_t again[2][2] = {{x, n}, {y, n}};
  report(gated ? "gated_as_q" : "activation_q", n, activation, 0,
         plan.run(again, 2, records, emel_quantized_bytes(n, EMEL_ACTIVATIONS_INT16), 0, 40, n));
}

}  // namespace

void digest_operations(const emel::Kernels& kernels, emel_pool* pool) {
  digest_counters(kernels, pool);
  for (uint32_t gating = 0; gating < emel::kGatings; ++gating) {
    digest_experts(kernels, pool, 8, 2, gating);
    digest_experts(kernels, pool, 37, 5, gating);
  }
  digest_yarn();
  constexpr uint32_t kWidths[] = {1, 16, 37, 100};
  for (const uint32_t n : kWidths) {
    digest_sums(kernels, pool, n);
    digest_layer_norm(kernels, pool, n, false);
    digest_layer_norm(kernels, pool, n, true);
    digest_mean(kernels, n, 2);
    digest_mean(kernels, n, 40);
    digest_adjust(kernels, n, 0.0f);
    digest_adjust(kernels, n, 5.0f);
    digest_convolution(kernels, pool, n, 3, 0);
    digest_convolution(kernels, pool, n, 4, 5);
  }
  for (uint32_t activation = 0; activation < emel::kActivations; ++activation) {
    digest_gated(kernels, pool, activation, true, 80);
    digest_gated(kernels, pool, activation, true, 19);
    if (activation != emel::kClampedSwish) digest_gated(kernels, pool, activation, false, 96);
  }
  constexpr AttentionCase kAttention[] = {
      {"head_norm", 2, 1, 128, 0, 5, true, 0, 0, 0, false, 0},
      {"head_norm", 3, 1, 40, 20, 3, true, 0, 0, 0, false, 0},
      {"window_1", 4, 2, 32, 250, 20, false, 1, 0, 0, false, 0},
      {"window_7", 2, 2, 32, 0, 100, false, 7, 0, 0, false, 0},
      {"window_40", 3, 1, 64, 250, 40, false, 40, 0, 0, false, 0},
      {"window_300", 3, 1, 64, 570, 4, false, 300, 0, 0, false, 0},
      {"cap", 2, 1, 64, 260, 9, false, 0, 0, 20.0f, false, 0},
      {"magnitude", 2, 1, 48, 2, 7, false, 0, 0, 0, false, 1.25f},
      {"sinks", 8, 2, 64, 3, 20, false, 0, 0, 0, true, 0},
      {"sinks_window_cap", 8, 2, 64, 300, 2, true, 128, 0, 5.0f, true, 0},
      {"both_ways", 3, 3, 32, 0, 270, false, 0, 1, 0, false, 0},
      {"both_ways_40", 3, 3, 32, 0, 270, false, 40, 1, 0, false, 0},
      {"q8", 9, 3, 64, 250, 30, false, 0, 0, 0, false, 0, EMEL_TYPE_Q8_0},
      {"q8", 9, 3, 64, 570, 1, false, 0, 0, 0, false, 0, EMEL_TYPE_Q8_0},
      {"q8", 6, 2, 40, 511, 3, false, 0, 0, 0, false, 0, EMEL_TYPE_Q8_0},
      {"q8", 70, 1, 16, 270, 2, false, 0, 0, 0, false, 0, EMEL_TYPE_Q8_0},
      {"q8_sinks_window_cap", 8, 2, 128, 300, 2, true, 128, 0, 5.0f, true, 0, EMEL_TYPE_Q8_0},
      {"q8_both_ways_40", 3, 3, 32, 0, 270, false, 40, 1, 0, false, 0, EMEL_TYPE_Q8_0},
      {"f32", 9, 3, 64, 250, 30, false, 0, 0, 0, false, 0, EMEL_TYPE_F32},
      {"f32", 9, 3, 64, 570, 1, false, 0, 0, 0, false, 0, EMEL_TYPE_F32},
      {"f32", 6, 2, 40, 511, 3, false, 0, 0, 0, false, 0, EMEL_TYPE_F32},
      {"f32", 70, 1, 16, 270, 2, false, 0, 0, 0, false, 0, EMEL_TYPE_F32},
      {"f32_sinks_window_cap", 8, 2, 128, 300, 2, true, 128, 0, 5.0f, true, 0, EMEL_TYPE_F32},
      {"f32_both_ways_40", 3, 3, 32, 0, 270, false, 40, 1, 0, false, 0, EMEL_TYPE_F32},
  };
  for (const AttentionCase& each : kAttention) digest_attention(kernels, pool, each);
}

}  // namespace emel_cases
