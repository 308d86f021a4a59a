#include <string.h>

#include <new>

#include "core/allocation.h"
#include "core/error.h"
#include "core/prefetcher.h"
#include "kernels/layout.h"
#include "plan/plan.h"

namespace emel {
namespace {

constexpr uint64_t kMaxOps = 1u << 20;
constexpr uint64_t kMaxBytes = uint64_t{1} << 46;  // sizes above stand for overflows: 0

uint64_t times(uint64_t n_bytes, uint64_t n) {
  uint64_t product = 0;
  return __builtin_mul_overflow(n_bytes, n, &product) || product > kMaxBytes ? 0 : product;
}

uint32_t tokens_per_tile(const emel_plan& plan) {
  uint32_t heads = 1;
  for (uint64_t i = 0; i < plan.desc.n_ops; ++i) {
    const emel_op& op = plan.ops[i];
    if (op.kind != EMEL_OP_ATTENTION) continue;
    const uint32_t shared = op.dim[0] / op.dim[1];
    if (shared > heads) heads = shared;
  }
  return heads >= kAttentionRows ? 1 : static_cast<uint32_t>(kAttentionRows / heads);
}

}  // namespace

const Kernels* kernels_of(int32_t isa) {
  if (isa < 0 || isa >= EMEL_ISA_COUNT || (emel_isa_mask() >> isa & 1u) == 0) return nullptr;
  switch (isa) {
    case EMEL_ISA_SCALAR:
      return &kKernelsScalar;
#if defined(__x86_64__)
    case EMEL_ISA_AVX2:
      return &kKernelsAvx2;
    case EMEL_ISA_AVX_VNNI:
      return &kKernelsAvxVnni;
    case EMEL_ISA_AVX512_VNNI:
      return &kKernelsAvx512Vnni;
    case EMEL_ISA_AVX512_AMX:
      return &kKernelsAvx512Amx;
#elif defined(__aarch64__)
    case EMEL_ISA_NEON_DOT:
      return &kKernelsNeonDot;
    case EMEL_ISA_NEON_I8MM:
      return &kKernelsNeonI8mm;
#endif
    default:
      return nullptr;
  }
}

}  // namespace emel

uint64_t emel_quantized_bytes(uint64_t n, uint32_t activations) {
  if (n > emel::kMaxBytes / 4 || activations >= EMEL_ACTIVATIONS_COUNT) return 0;
  return emel::QuantizedLayout(n, emel::planes_of(activations)).bytes();
}

uint64_t emel_kv_bytes(uint64_t n_kv_layers, uint64_t n_blocks, uint64_t n_kv_heads, uint64_t head_dim,
                       uint32_t kv_type) {
  if (head_dim > emel::kMaxBytes / 128 || !emel::is_kv_type(kv_type)) return 0;
  const uint64_t head_bytes = emel::KvLayout(kv_type, 1, head_dim).head_bytes;
  return emel::times(emel::times(emel::times(head_bytes, n_kv_heads), n_blocks), n_kv_layers);
}

uint64_t emel_state_bytes(uint64_t n_state_layers, uint64_t state_width, uint64_t n_slots) {
  if (state_width > emel::kMaxBytes / 4) return 0;
  return emel::times(emel::times(state_width * 4, n_state_layers), n_slots);
}

uint64_t emel_routing_bytes(uint64_t n_rows, uint64_t k, uint64_t n_experts) {
  const uint64_t choices = emel::times(n_rows, k);
  if (choices == 0 || choices > emel::kMaxBytes / 16 || n_experts > emel::kMostExperts) return 0;
  return emel::RoutingLayout(n_rows, k, n_experts).bytes;
}

uint64_t emel_attention_scratch(uint64_t max_tokens, uint64_t n_heads, uint64_t, uint64_t head_dim, uint64_t n_blocks) {
  constexpr uint64_t kBlocksPerChunk = EMEL_ATTENTION_CHUNK / EMEL_KV_BLOCK;
  if (head_dim > emel::kMaxBytes / 128) return 0;
  const uint64_t tokens = max_tokens < emel::kSplitTokens ? max_tokens : emel::kSplitTokens;
  const uint64_t chunks = n_blocks / kBlocksPerChunk + (n_blocks % kBlocksPerChunk != 0);
  const uint64_t record = emel::attention_partial_floats(head_dim) * sizeof(float);
  return emel::times(emel::times(emel::times(record, chunks), n_heads), tokens);
}

emel_status emel_plan_create(const emel_plan_desc* desc, emel_plan** out) {
  if (desc == nullptr || out == nullptr) return emel::fail(EMEL_INVALID_ARGUMENT, "plan: desc or out is NULL");
  *out = nullptr;
  if (desc->n_ops == 0 || desc->n_ops > emel::kMaxOps || desc->n_weights > emel::kMaxOps || desc->ops == nullptr ||
      (desc->weights == nullptr && desc->n_weights != 0)) {
    return emel::fail(EMEL_INVALID_ARGUMENT, "plan: %llu ops and %llu weights; allowed are 1 to %llu",
                      static_cast<unsigned long long>(desc->n_ops), static_cast<unsigned long long>(desc->n_weights),
                      static_cast<unsigned long long>(emel::kMaxOps));
  }
  const emel::Kernels* kernels = emel::kernels_of(desc->isa);
  if (kernels == nullptr) {
    return emel::fail(EMEL_UNSUPPORTED, "plan: route %d is not available on this CPU", desc->isa);
  }
  auto* plan = emel::allocate_array<emel_plan>(1);
  if (plan == nullptr) return emel::fail(EMEL_OUT_OF_MEMORY, "plan: out of memory");
  pthread_mutex_init(&plan->run_mutex, nullptr);
  plan->desc = *desc;
  plan->kernels = kernels;
  plan->ops = emel::allocate_array<emel_op>(desc->n_ops);
  plan->weights = emel::allocate_array<emel_weight>(desc->n_weights);
  plan->next_item = emel::allocate_array<std::atomic<uint32_t>>(desc->n_ops);
  if (plan->ops == nullptr || plan->weights == nullptr || plan->next_item == nullptr) {
    emel_plan_destroy(plan);
    return emel::fail(EMEL_OUT_OF_MEMORY, "plan: out of memory");
  }
  memcpy(plan->ops, desc->ops, desc->n_ops * sizeof(emel_op));
  if (desc->n_weights != 0) memcpy(plan->weights, desc->weights, desc->n_weights * sizeof(emel_weight));
  plan->desc.ops = plan->ops;
  plan->desc.weights = plan->weights;
  if (plan->desc.output_width == 0) plan->desc.output_width = plan->desc.n_vocab;
  const emel_status status = emel::verify_plan(*plan);
  if (status != EMEL_OK) {
    emel_plan_destroy(plan);
    return status;
  }
  plan->n_positions = emel::positions_of(*plan);
  plan->tokens_per_tile = emel::tokens_per_tile(*plan);
  plan->fetches_near = emel::prefetcher_falls_behind();
  plan->tiles = emel::allocate_array<emel::QueryTile>(desc->max_tokens);
  if (plan->tiles == nullptr) {
    emel_plan_destroy(plan);
    return emel::fail(EMEL_OUT_OF_MEMORY, "plan: out of memory");
  }
  *out = plan;
  return EMEL_OK;
}

void emel_plan_destroy(emel_plan* plan) {
  if (plan == nullptr) return;
  emel::release(plan->tiles);
  emel::release(plan->next_item);
  emel::release(plan->weights);
  emel::release(plan->ops);
  pthread_mutex_destroy(&plan->run_mutex);
  emel::release(plan);
}

emel_status emel_plan_rebase(emel_plan* plan, uint32_t index, const void* data, uint64_t n_bytes) {
  if (plan == nullptr || index >= plan->desc.n_weights) {
    return emel::fail(EMEL_OUT_OF_BOUNDS, "rebase: no weight %u", index);
  }
  emel_weight& weight = plan->weights[index];
  const uint64_t alignment = emel::weight_alignment(weight);
  if (data == nullptr || n_bytes < weight.n_bytes || reinterpret_cast<uintptr_t>(data) % alignment != 0) {
    return emel::fail(EMEL_OUT_OF_BOUNDS, "rebase: weight %u needs %llu bytes aligned to %llu, got %llu", index,
                      static_cast<unsigned long long>(weight.n_bytes), static_cast<unsigned long long>(alignment),
                      static_cast<unsigned long long>(n_bytes));
  }
  pthread_mutex_lock(&plan->run_mutex);
  weight.data = data;
  pthread_mutex_unlock(&plan->run_mutex);
  return EMEL_OK;
}
