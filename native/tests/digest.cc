// Runs every kernel and a small plan on seeded data and prints one digest per case.
//
//   emel_digest ROUTE LANES     e.g. emel_digest avx2 3
//
// The output must be the same text for every route of the machine, every number of lanes, and every CPU family. Besides
// the library's routes there is avx_vnni_evex: the route avx_vnni in the other encoding of its instructions, which CPUs
// with AVX-512 VNNI run although they lack AVX-VNNI. Built with EMEL_PLANS_ALONE it leaves out the kernels that are
// called without a plan, which no lanes run (tests/native/test_sanitizers.py).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "emel.h"
#include "kernels/layout.h"
#include "kernels/table.h"
#include "pack/source.h"
#include "plan/plan.h"

#if defined(EMEL_EVEX_VNNI)
namespace emel {
extern const Kernels kKernelsAvxVnniEvex;
}
#endif

using emel_cases::Bytes;
using emel_cases::fnv1a;
using emel_cases::Random;
using emel_cases::records_digest;
using emel_cases::report;
using emel_cases::require;

namespace {

// How plans are made and what then runs them.
struct Route {
  int32_t isa;
  const emel::Kernels* kernels;
};

size_t source_row_bytes(uint32_t type, size_t cols) {
  const emel::SourceBlock block = emel::source_block(type);
  return cols / block.elements * block.bytes;
}

uint16_t small_half(Random& random) { return static_cast<uint16_t>(0x2000u + random.next() % 0x0800u); }

// A packed random matrix of the type.
struct Matrix {
  uint32_t type;
  size_t rows;
  size_t cols;
  Bytes packed;

  static size_t packed_bytes(uint32_t type, size_t rows, size_t cols) {
    uint64_t n = 0;
    require(emel_pack_size(type, rows, cols, &n));
    return n;
  }

  Matrix(emel_pool* pool, Random& random, uint32_t type_, size_t rows_, size_t cols_)
      : type(type_), rows(rows_), cols(cols_), packed(packed_bytes(type_, rows_, cols_)) {
    const size_t row_bytes = source_row_bytes(type, cols);
    Bytes source(rows * row_bytes);
    for (size_t row = 0; row < rows; ++row) fill(random, source.data + row * row_bytes, row_bytes);
    const emel_pack_job job{source.data, rows * row_bytes, packed.data, packed.size, rows, cols, type, 0};
    require(emel_pack(pool, &job, 1));
  }

  // Random bytes; where the format has float16 scales, small ones.
  void fill(Random& random, uint8_t* row, size_t row_bytes) const {
    for (size_t i = 0; i < row_bytes; ++i) row[i] = static_cast<uint8_t>(random.next());
    if (type == EMEL_TYPE_F32) {
      for (size_t k = 0; k < cols; ++k) {
        const float value = random.value();
        memcpy(row + 4 * k, &value, 4);
      }
      return;
    }
    const emel::SourceBlock block = emel::source_block(type);
    for (size_t at = 0; at < row_bytes; at += block.bytes) {
      if (type == EMEL_TYPE_IQ1_M) {  // the highest nibble of its float16 scale
        row[at + 55] = static_cast<uint8_t>((row[at + 55] & 15) | 0x20);
        continue;
      }
      if (type == EMEL_TYPE_MXFP4) {
        row[at] = static_cast<uint8_t>(120 + random.next() % 8);
        continue;
      }
      for (const size_t scale : scales_in_block()) {
        if (scale == kNoScale) break;
        const uint16_t half = static_cast<uint16_t>(small_half(random) | (random.next() & 0x8000u));
        memcpy(row + at + scale, &half, 2);
      }
    }
  }

  static constexpr size_t kNoScale = 9999;
  struct TwoScales {
    size_t at[2];
    const size_t* begin() const { return at; }
    const size_t* end() const { return at + 2; }
  };
  TwoScales scales_in_block() const {
    switch (type) {
      case EMEL_TYPE_Q4_1:
      case EMEL_TYPE_Q5_1:
      case EMEL_TYPE_Q4_K:
      case EMEL_TYPE_Q5_K:
        return {{0, 2}};
      case EMEL_TYPE_Q2_K:
        return {{80, 82}};
      case EMEL_TYPE_Q3_K:
        return {{108, kNoScale}};
      case EMEL_TYPE_Q6_K:
        return {{208, kNoScale}};
      case EMEL_TYPE_TQ1_0:
        return {{52, kNoScale}};
      case EMEL_TYPE_TQ2_0:
        return {{64, kNoScale}};
      default:
        return {{0, kNoScale}};
    }
  }

  emel_weight weight() const { return {packed.data, packed.size, rows, cols, type, 1}; }
};

void fill_values(Random& random, Bytes& to, size_t n) {
  for (size_t i = 0; i < n; ++i) to.floats()[i] = random.value() * 4.0f;
}

// Cases of one plane carry a suffix: they are results of their own (docs/concepts/numerics.md).
const char* suffix_of(size_t n_planes) { return n_planes == 1 ? "_int8" : ""; }

void report_planes(const char* name, size_t n_planes, size_t a, size_t b, size_t c, uint64_t digest) {
  char full[48];
  snprintf(full, sizeof full, "%s%s", name, suffix_of(n_planes));
  report(full, a, b, c, digest);
}

void quantize_rows(const emel::Kernels& k, Bytes& x, Bytes& records, size_t n, size_t n_rows, size_t n_planes) {
  const emel::QuantizedLayout layout(n, n_planes);
  emel::BlockArgs a{};
  a.n_planes = n_planes;
  a.first = x.floats();
  a.quantized = records.data;
  a.n = n;
  a.item_end = n_rows * layout.n_blocks;
  k.quantize(a);
}

void digest_matmul(const emel::Kernels& k, emel_pool* pool, uint32_t type, size_t rows, size_t cols, size_t n_tokens,
                   size_t n_planes = 2) {
  Random random{type * 1000003u + rows * 1009u + cols};
  const Matrix matrix(pool, random, type, rows, cols);
  const bool blocks = emel::is_block_type(type);
  const size_t stride = blocks ? emel::QuantizedLayout(cols, n_planes).bytes() : cols * 4;
  Bytes x(n_tokens * cols * 4);
  Bytes records(n_tokens * stride);
  Bytes bias(rows * 4);
  Bytes out(n_tokens * rows * 4);
  fill_values(random, x, n_tokens * cols);
  fill_values(random, bias, rows);
  if (blocks) quantize_rows(k, x, records, cols, n_tokens, n_planes);
  emel::MatmulArgs a{};
  a.packed = matrix.packed.data;
  a.activation = blocks ? records.data : x.data;
  a.activation_stride = stride;
  a.out = out.floats();
  a.out_stride = rows;
  a.bias = rows % 2 == 0 ? nullptr : bias.floats();
  a.rows = rows;
  a.cols = cols;
  a.group_end = (rows + 15) / 16;
  a.n_tokens = n_tokens;
  a.n_planes = n_planes;
  k.matmul[type](a);
  char name[32];
  snprintf(name, sizeof name, "matmul_%u", type);
  report_planes(name, n_planes, rows, cols, n_tokens, fnv1a(out.data, n_tokens * rows * 4));
}

void digest_blocks(const emel::Kernels& k, size_t n, size_t n_planes = 2) {
  Random random{n};
  constexpr size_t kRows = 3;
  const emel::QuantizedLayout layout(n, n_planes);
  Bytes x(kRows * n * 4);
  Bytes y(kRows * n * 4);
  Bytes weight(n * 4);
  Bytes out(kRows * n * 4);
  Bytes records(kRows * layout.bytes());
  Bytes bad(kRows * 4);
  fill_values(random, x, kRows * n);
  fill_values(random, y, kRows * n);
  fill_values(random, weight, n);
  x.floats()[0] = 1e-38f;  // a block of tiny values when n is small
  quantize_rows(k, x, records, n, kRows, n_planes);
  report_planes("quantize", n_planes, n, 0, 0, records_digest(k, records.data, layout, kRows));
  emel::BlockArgs g{x.floats(), y.floats(), out.floats(), records.data, n, 0, kRows * layout.n_blocks};
  g.n_planes = n_planes;
  k.gated[emel::kSilu](g);
  report_planes("gated", n_planes, n, 0, 0,
                records_digest(k, records.data, layout, kRows, fnv1a(out.data, kRows * n * 4)));
  emel::NormArgs a{};
  a.n_planes = n_planes;
  a.x = x.floats();
  a.delta = y.floats();
  a.weight = weight.floats();
  a.out = out.floats();
  a.quantized = records.data;
  a.n = n;
  a.row_end = kRows;
  a.epsilon = 1e-5f;
  a.bad_layer = bad.ints();
  k.rms_norm(a);
  const uint64_t hash = fnv1a(x.data, kRows * n * 4, fnv1a(out.data, kRows * n * 4));
  report_planes("rms_norm", n_planes, n, 0, 0, records_digest(k, records.data, layout, kRows, hash));
  if (n_planes == 2) report("argmax", n, static_cast<size_t>(k.argmax(x.floats(), n)), 0, 0);
}

// One sequence of n_tokens after n_past, in a shuffled block table: rope_store, then attention by plan ops.
struct Shape {
  uint32_t n_heads, n_kv_heads, head_dim, n_past, n_tokens;
};

void digest_attention(const Route& route, emel_pool* pool, const Shape& s, bool halves) {
  Random random{s.head_dim * 31u + s.n_past};
  const uint32_t n_all = s.n_past + s.n_tokens;
  const uint32_t n_blocks = (n_all + 15) / 16 + 3;
  const size_t q_width = size_t{s.n_heads} * s.head_dim;
  const size_t kv_width = size_t{s.n_kv_heads} * s.head_dim;
  uint64_t at = 0;
  const auto place = [&at](uint64_t n) {
    const uint64_t offset = at;
    at += (n + 63) / 64 * 64;
    return offset;
  };
  const uint64_t q = place(n_all * q_width * 4);
  const uint64_t k = place(n_all * kv_width * 4);
  const uint64_t v = place(n_all * kv_width * 4);
  const uint64_t table = place(n_all * s.head_dim * 4);
  const uint64_t out = place(n_all * q_width * 4);
  const uint64_t scratch = place(emel_attention_scratch(n_all, s.n_heads, s.n_kv_heads, s.head_dim, n_blocks));
  Bytes frequencies(s.head_dim / 2 * 8);
  require(emel_rope_frequencies(10000.0, s.head_dim, reinterpret_cast<double*>(frequencies.data)));
  const emel_weight weight{frequencies.data, frequencies.size, 1, s.head_dim / 2, EMEL_TYPE_F64, 0};
  emel_op ops[3] = {};
  for (emel_op& op : ops) {
    for (uint64_t& offset : op.in) offset = EMEL_NONE;
    for (uint64_t& offset : op.out) offset = EMEL_NONE;
    for (uint32_t& index : op.weight) index = EMEL_NO_WEIGHT;
  }
  ops[0].kind = EMEL_OP_ROPE_TABLE;
  ops[0].weight[0] = 0;
  ops[0].out[0] = table;
  ops[1].kind = EMEL_OP_ROPE_STORE;
  ops[1].in[0] = q;
  ops[1].in[1] = k;
  ops[1].in[2] = v;
  ops[1].in[3] = table;
  const uint32_t rope_dims[6] = {s.n_heads, s.n_kv_heads, s.head_dim, s.head_dim, halves ? 1u : 0u, 0};
  memcpy(ops[1].dim, rope_dims, sizeof rope_dims);
  ops[2].kind = EMEL_OP_ATTENTION;
  ops[2].in[0] = q;
  ops[2].in[1] = scratch;
  ops[2].out[0] = out;
  const uint32_t attention_dims[4] = {s.n_heads, s.n_kv_heads, s.head_dim, 0};
  memcpy(ops[2].dim, attention_dims, sizeof attention_dims);
  ops[2].param[0] = 0.125f;
  emel_plan_desc desc{};
  desc.ops = ops;
  desc.n_ops = 3;
  desc.weights = &weight;
  desc.n_weights = 1;
  desc.arena_bytes = at;
  desc.max_tokens = n_all;
  desc.max_outputs = 1;
  desc.max_sequences = 1;
  desc.n_kv_layers = 1;
  desc.n_kv_heads = s.n_kv_heads;
  desc.head_dim = s.head_dim;
  desc.n_blocks = desc.max_sequence_blocks = n_blocks;
  desc.kv_type = EMEL_TYPE_F16;
  desc.n_vocab = 8;
  desc.isa = route.isa;
  emel_plan* plan = nullptr;
  require(emel_plan_create(&desc, &plan));
  plan->kernels = route.kernels;
  Bytes arena(at);
  Bytes kv(emel_kv_bytes(1, n_blocks, s.n_kv_heads, s.head_dim, desc.kv_type));
  memset(kv.data, 0xff, kv.size);  // NaN wherever nothing was stored: it must not be read
  Bytes ints(n_all * 4 * 4 + n_blocks * 4);
  int32_t* positions = ints.ints();
  int32_t* zeros = positions + n_all;
  int32_t* bad = zeros + n_all;
  int32_t* blocks = bad + n_all;
  for (uint32_t b = 0; b < n_blocks; ++b) blocks[b] = static_cast<int32_t>((b * 7 + 3) % n_blocks);
  if (n_blocks % 7 == 0) {
    for (uint32_t b = 0; b < n_blocks; ++b) blocks[b] = static_cast<int32_t>(n_blocks - 1 - b);
  }
  emel_batch batch{};
  batch.arena = arena.data;
  batch.arena_bytes = arena.size;
  batch.kv = kv.data;
  batch.kv_bytes = kv.size;
  batch.tokens = zeros;
  batch.positions = positions;
  batch.sequences = zeros;
  batch.block_table = blocks;
  batch.bad_layer = bad;
  batch.n_sequences = 1;
  batch.block_stride = n_blocks;
  batch.segment_end = 1;
  const uint32_t steps[2] = {s.n_past, s.n_tokens};
  uint32_t done = 0;
  for (const uint32_t n : steps) {
    if (n == 0) continue;
    for (uint32_t i = 0; i < n; ++i) positions[i] = static_cast<int32_t>(done + i);
    for (size_t i = 0; i < n * q_width; ++i) reinterpret_cast<float*>(arena.data + q)[i] = random.value() * 3.0f;
    for (size_t i = 0; i < n * kv_width; ++i) reinterpret_cast<float*>(arena.data + k)[i] = random.value() * 3.0f;
    for (size_t i = 0; i < n * kv_width; ++i) reinterpret_cast<float*>(arena.data + v)[i] = random.value();
    batch.n_tokens = n;
    require(emel_plan_run(plan, pool, &batch, nullptr));
    done += n;
  }
  char name[48];
  snprintf(name, sizeof name, "attention_%u_%u%s", s.n_heads, s.n_kv_heads, halves ? "_halves" : "");
  report(name, s.head_dim, s.n_past, s.n_tokens, fnv1a(arena.data + out, s.n_tokens * q_width * 4));
  emel_plan_destroy(plan);
}

Route route_named(const char* name) {
  for (int32_t isa = 0; isa < EMEL_ISA_COUNT; ++isa) {
    if (strcmp(emel_isa_name(isa), name) == 0) return {isa, emel::kernels_of(isa)};
  }
#if defined(EMEL_EVEX_VNNI)
  if (strcmp(name, "avx_vnni_evex") == 0 && emel::kernels_of(EMEL_ISA_AVX512_VNNI) != nullptr) {
    return {EMEL_ISA_AVX512_VNNI, &emel::kKernelsAvxVnniEvex};
  }
#endif
  return {-1, nullptr};
}

}  // namespace

int main(int argc, char** argv) {
  const Route route = argc == 3 ? route_named(argv[1]) : Route{-1, nullptr};
  const int n_lanes = argc == 3 ? atoi(argv[2]) : 0;
  if (route.kernels == nullptr || n_lanes < 1) {
    fprintf(stderr, "usage: emel_digest ROUTE LANES; routes here:");
    for (int32_t i = 0; i < EMEL_ISA_COUNT; ++i) {
      if (emel::kernels_of(i) != nullptr) fprintf(stderr, " %s", emel_isa_name(i));
    }
    fprintf(stderr, "\n");
    return 2;
  }
  emel_pool* pool = nullptr;
  require(emel_pool_create(static_cast<uint32_t>(n_lanes), &pool));
  const emel::Kernels& k = *route.kernels;
#if !defined(EMEL_PLANS_ALONE)
  constexpr uint32_t kTypes[] = {EMEL_TYPE_F32,  EMEL_TYPE_F16,  EMEL_TYPE_BF16, EMEL_TYPE_Q4_0,   EMEL_TYPE_Q4_1,
                                 EMEL_TYPE_Q5_0, EMEL_TYPE_Q5_1, EMEL_TYPE_Q8_0, EMEL_TYPE_IQ4_NL, EMEL_TYPE_MXFP4};
  constexpr uint32_t kSuperTypes[] = {EMEL_TYPE_Q2_K, EMEL_TYPE_Q3_K,   EMEL_TYPE_Q4_K,  EMEL_TYPE_Q5_K,
                                      EMEL_TYPE_Q6_K, EMEL_TYPE_IQ4_XS, EMEL_TYPE_TQ1_0, EMEL_TYPE_TQ2_0};
  constexpr uint32_t kLatticeTypes[] = {EMEL_TYPE_IQ1_S, EMEL_TYPE_IQ1_M,   EMEL_TYPE_IQ2_XXS, EMEL_TYPE_IQ2_XS,
                                        EMEL_TYPE_IQ2_S, EMEL_TYPE_IQ3_XXS, EMEL_TYPE_IQ3_S};
  constexpr size_t kShapes[][2] = {{1, 32}, {16, 64}, {37, 96}, {80, 576}};
  constexpr size_t kSuperShapes[][2] = {{1, 256}, {37, 512}, {48, 768}};
  constexpr size_t kTokens[] = {1, 2, 3, 4, 5, 7, 8, 9, 17};
  for (const size_t n : kTokens) {
    for (const uint32_t type : kTypes) {
      for (const auto& shape : kShapes) digest_matmul(k, pool, type, shape[0], shape[1], n);
    }
    for (const uint32_t type : kSuperTypes) {
      for (const auto& shape : kSuperShapes) digest_matmul(k, pool, type, shape[0], shape[1], n);
    }
  }
  for (const size_t n : kTokens) {
    for (const uint32_t type : kLatticeTypes) digest_matmul(k, pool, type, 37, 512, n);
  }
  constexpr uint32_t kFloatTypes[] = {EMEL_TYPE_F32, EMEL_TYPE_F16, EMEL_TYPE_BF16};
  for (const uint32_t type : kFloatTypes) {
    for (size_t cols = 1; cols < 8; ++cols) digest_matmul(k, pool, type, 17, cols, 3);
  }
  for (size_t n = 1; n <= 66; ++n) digest_blocks(k, n);
  digest_blocks(k, 576);
  digest_blocks(k, 1000);
  for (const size_t n : kTokens) {
    for (const uint32_t type : kTypes) {
      if (emel::is_block_type(type)) digest_matmul(k, pool, type, 37, 96, n, 1);
    }
    for (const uint32_t type : kSuperTypes) digest_matmul(k, pool, type, 37, 512, n, 1);
    for (const uint32_t type : kLatticeTypes) digest_matmul(k, pool, type, 37, 512, n, 1);
  }
  constexpr size_t kWidths[] = {1, 16, 17, 31, 32, 33, 64, 66, 576, 1000};
  for (const size_t n : kWidths) digest_blocks(k, n, 1);
#endif
  constexpr Shape kAttention[] = {{1, 1, 64, 0, 1},   {3, 1, 64, 0, 40},  {9, 3, 64, 250, 30}, {4, 2, 80, 300, 1},
                                  {8, 8, 128, 15, 2}, {6, 2, 40, 511, 3}, {9, 3, 64, 700, 17}, {70, 1, 16, 270, 2}};
  for (const Shape& shape : kAttention) {
    digest_attention(route, pool, shape, false);
    digest_attention(route, pool, shape, true);
  }
  emel_cases::digest_operations(k, pool);
#if !defined(EMEL_PLANS_ALONE)
  emel_cases::digest_sampling();
#endif
  emel_pool_destroy(pool);
  return 0;
}
