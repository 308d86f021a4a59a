// Runs a verified plan: every lane walks the records, does its slice, and meets the others where data crosses lanes.
#include <string.h>

#include "core/error.h"
#include "core/math.h"
#include "kernels/layout.h"
#include "plan/attention.h"
#include "plan/embedding.h"
#include "plan/experts.h"
#include "plan/op_run.h"
#include "plan/plan.h"
#include "pool/pool.h"

namespace emel {
namespace {

void run_rope_table(const OpRun& r) {
  const emel_weight& frequencies = r.weight(0);
  const auto* inv_freq = static_cast<const double*>(frequencies.data);
  const size_t n_pairs = frequencies.cols;
  const double magnitude = r.op.param[0] == 0.0f ? 1.0 : static_cast<double>(r.op.param[0]);
  const Slice items = slice_of(r.batch().n_tokens * n_pairs, r.lane, 64);
  for (size_t item = items.begin; item < items.end; ++item) {
    const size_t token = item / n_pairs;
    const size_t pair = item % n_pairs;
    const SineCosine angle = sine_cosine(static_cast<double>(r.batch().positions[token]) * inv_freq[pair]);
    float* out = r.floats(r.op.out[0]) + token * 2 * n_pairs + pair;
    out[0] = static_cast<float>(angle.cosine * magnitude);
    out[n_pairs] = static_cast<float>(angle.sine * magnitude);
  }
}

void run_norm(const OpRun& r) {
  const bool is_layer_norm = r.op.kind == EMEL_OP_LAYER_NORM;
  const Slice rows = slice_of(r.n_rows(), r.lane);
  NormArgs a{};
  a.x = r.floats(r.op.in[0]);
  a.delta = r.floats(r.op.in[1]);
  a.weight = static_cast<const float*>(r.weight(0).data);
  a.out = r.floats(r.op.out[0]);
  a.quantized = r.at(r.op.out[1]);
  a.n_planes = r.n_planes();
  a.n = r.op.dim[0];
  a.row_begin = rows.begin;
  a.row_end = rows.end;
  a.epsilon = r.op.param[0];
  a.layer = static_cast<int32_t>(r.op.layer);
  a.bad_layer = r.batch().bad_layer;
  a.token_rows = r.outputs() ? r.batch().output_rows : nullptr;
  a.delta_scale = r.op.param[1];
  a.bias = is_layer_norm ? r.optional_vector(1) : nullptr;
  (is_layer_norm ? r.kernels().layer_norm : r.kernels().rms_norm)(a);
}

// Below this many multiply-adds per lane a second lane costs more than it brings.
constexpr size_t kLeastWork = 32 * 1024;

// The slice's results, scaled and capped where the record asks for it.
void adjust_results(const OpRun& r, const MatmulArgs& a) {
  const float scale = r.op.param[0] == 0.0f ? 1.0f : r.op.param[0];
  const float cap = r.op.param[1];
  if (scale == 1.0f && cap == 0.0f) return;
  const size_t begin = a.group_begin * kRowsPerGroup;
  const size_t end = a.group_end * kRowsPerGroup < a.rows ? a.group_end * kRowsPerGroup : a.rows;
  for (size_t t = 0; t < a.n_tokens; ++t) r.kernels().adjust(a.out + t * a.out_stride + begin, end - begin, scale, cap);
}

void run_matmul(const OpRun& r) {
  const size_t cols = r.op.dim[0];
  const size_t n_parts = r.op.dim[1];
  const size_t n_tokens = r.n_rows();
  if (n_tokens == 0) return;
  size_t n_groups = 0;
  for (uint32_t p = 0; p < n_parts; ++p) n_groups += (r.weight(p).rows + kRowsPerGroup - 1) / kRowsPerGroup;
  const size_t group_work = cols * kRowsPerGroup * n_tokens;
  const Slice slice = slice_of(n_groups, r.lane, (kLeastWork + group_work - 1) / group_work);
  size_t first = 0;  // group of the job at which this part begins
  for (uint32_t p = 0; p < n_parts; ++p) {
    const emel_weight& weight = r.weight(p);
    const size_t groups = (weight.rows + kRowsPerGroup - 1) / kRowsPerGroup;
    const size_t begin = slice.begin > first ? slice.begin - first : 0;
    const size_t end = slice.end > first ? slice.end - first : 0;
    first += groups;
    MatmulArgs a{};
    a.group_begin = begin < groups ? begin : groups;
    a.group_end = end < groups ? end : groups;
    if (a.group_begin >= a.group_end) continue;
    a.packed = static_cast<const uint8_t*>(weight.data);
    a.activation = r.at(r.op.in[0]);
    a.activation_stride = is_block_type(weight.type) ? r.record_bytes(cols) : cols * sizeof(float);
    const bool is_logits = r.op.out[p] == EMEL_LOGITS;
    const bool is_piece = r.op.dim[3] == 1;
    a.out = (is_logits ? r.batch().logits : r.floats(r.op.out[p])) + (is_piece ? r.op.dim[2] : 0);
    a.out_stride = !is_piece ? weight.rows : is_logits ? r.run.plan->desc.output_width : r.op.dim[4];
    a.bias = r.optional_vector(4 + p);
    a.rows = weight.rows;
    a.cols = cols;
    a.n_planes = r.n_planes();
    a.fetches_near = r.run.plan->fetches_near;
    a.n_tokens = n_tokens;
    r.kernels().matmul[weight.type](a);
    adjust_results(r, a);
  }
}

void run_blocks(const OpRun& r, bool gated) {
  BlockArgs a{};
  a.first = r.floats(r.op.in[0]);
  a.second = gated ? r.floats(r.op.in[1]) : nullptr;
  a.alpha = r.op.param[0];
  a.limit = r.op.param[1];
  a.out = gated ? r.floats(r.op.out[0]) : nullptr;
  a.quantized = r.at(gated ? r.op.out[1] : r.op.out[0]);
  a.n_planes = r.n_planes();
  a.n = r.op.dim[0];
  const size_t per_token = r.op.dim[2] == 0 ? 1 : r.op.dim[2];
  const Slice items =
      slice_of(r.n_rows() * per_token * QuantizedLayout(a.n, a.n_planes).n_blocks, r.lane, gated ? 8 : 32);
  a.item_begin = items.begin;
  a.item_end = items.end;
  if (gated) {
    r.kernels().gated[r.op.dim[1]](a);
  } else {
    r.kernels().quantize(a);
  }
}

void run_add(const OpRun& r) {
  const Slice rows = slice_of(r.n_rows(), r.lane);
  AddArgs a{};
  a.x = r.floats(r.op.in[0]);
  a.delta = r.floats(r.op.in[1]);
  a.gate = r.floats(r.op.in[2]);
  a.out = r.floats(r.op.out[0]);
  a.n = r.op.dim[0];
  a.row_begin = rows.begin;
  a.row_end = rows.end;
  a.scale = r.op.param[0];
  r.kernels().add(a);
}

void run_convolution(const OpRun& r) {
  const emel_plan_desc& d = r.run.plan->desc;
  ConvolutionArgs a{};
  a.n = r.op.dim[0];
  a.taps = r.op.dim[1];
  a.n_kept = r.op.dim[3];
  a.in = r.floats(r.op.in[0]);
  a.out = r.floats(r.op.out[0]);
  a.taps_by_channel = static_cast<const float*>(r.weight(0).data);
  a.bias = r.optional_vector(1);
  a.state = r.batch().state + size_t{r.op.dim[2]} * d.state_width;
  a.state_stride = size_t{d.n_state_layers} * d.state_width;
  a.positions = r.batch().positions;
  a.sequences = r.batch().sequences;
  a.slots = r.batch().slots;
  a.n_tokens = r.batch().n_tokens;
  const Slice blocks = slice_of((a.n + 15) / 16, r.lane, 4);
  a.block_begin = blocks.begin;
  a.block_end = blocks.end;
  r.kernels().convolution(a);
}

void run_argmax(const OpRun& r) {
  const size_t n_vocab = r.run.plan->desc.n_vocab;
  const Slice rows = slice_of(r.batch().n_outputs, r.lane);
  for (size_t row = rows.begin; row < rows.end; ++row) {
    r.batch().argmax[row] = r.kernels().argmax(r.batch().logits + row * n_vocab, n_vocab);
  }
}

void run_op(const OpRun& r, std::atomic<uint32_t>& next) {
  switch (r.op.kind) {
    case EMEL_OP_EMBED:
      return run_embed(r);
    case EMEL_OP_ROPE_TABLE:
      return run_rope_table(r);
    case EMEL_OP_RMS_NORM:
    case EMEL_OP_LAYER_NORM:
      return run_norm(r);
    case EMEL_OP_MATMUL:
      return run_matmul(r);
    case EMEL_OP_ROPE_STORE:
      return run_rope_store(r);
    case EMEL_OP_ATTENTION:
      return run_attention(r, next);
    case EMEL_OP_QUANTIZE:
      return run_blocks(r, false);
    case EMEL_OP_GATED:
      return run_blocks(r, true);
    case EMEL_OP_GATHER:
      return run_gather(r);
    case EMEL_OP_SHORT_CONV:
      return run_convolution(r);
    case EMEL_OP_TOP_K:
      return run_top_k(r);
    case EMEL_OP_EXPERT_ROWS:
      return run_expert_rows(r);
    case EMEL_OP_EXPERT_MATMUL:
      return run_expert_matmul(r);
    case EMEL_OP_EXPERT_SUM:
      return run_expert_sum(r);
    case EMEL_OP_ADD:
      return run_add(r);
    case EMEL_OP_MEAN:
      return run_mean(r);
    default:
      return run_argmax(r);
  }
}

bool in_run(const emel_op& op, const emel_batch& batch) {
  return op.segment >= batch.segment_begin && op.segment < batch.segment_end;
}

void run_lane(void* context, const Lane& lane) {
  const Run& run = *static_cast<const Run*>(context);
  for (uint64_t i = 0; i < run.plan->desc.n_ops; ++i) {
    const emel_op& op = run.plan->ops[i];
    if (!in_run(op, *run.batch)) continue;
    run_op({run, op, lane}, run.plan->next_item[i]);
    if ((op.flags & EMEL_FLAG_NO_BARRIER) == 0) run.pool->barrier();
  }
}

// Whether the op runs a kernel of the specification's table although the plan's table is another. EMBED, ROPE_TABLE and
// GATHER have one body for all routes.
bool is_fallback(const emel_plan& plan, const emel_op& op) {
  const Kernels& used = *plan.kernels;
  const Kernels& scalar = kKernelsScalar;
  if (&used == &scalar) return false;
  switch (op.kind) {
    case EMEL_OP_RMS_NORM:
      return used.rms_norm == scalar.rms_norm;
    case EMEL_OP_LAYER_NORM:
      return used.layer_norm == scalar.layer_norm;
    case EMEL_OP_MEAN:
      return used.mean == scalar.mean;
    case EMEL_OP_MATMUL:
    case EMEL_OP_EXPERT_MATMUL:
      for (uint32_t p = 0; p < op.dim[1]; ++p) {
        const uint32_t type = plan.weights[op.weight[p]].type;
        if (used.matmul[type] == scalar.matmul[type]) return true;
      }
      return (op.param[1] != 0.0f || op.param[0] != 0.0f) && used.adjust == scalar.adjust;
    case EMEL_OP_ROPE_STORE:
      return used.rope_store == scalar.rope_store;
    case EMEL_OP_ATTENTION:
      return used.attention == scalar.attention || used.attention_chunk == scalar.attention_chunk ||
             used.attention_join == scalar.attention_join;
    case EMEL_OP_QUANTIZE:
      return used.quantize == scalar.quantize;
    case EMEL_OP_GATED:
      return used.gated[op.dim[1]] == scalar.gated[op.dim[1]];
    case EMEL_OP_ARGMAX:
      return used.argmax == scalar.argmax;
    case EMEL_OP_ADD:
      return used.add == scalar.add;
    case EMEL_OP_SHORT_CONV:
      return used.convolution == scalar.convolution;
    case EMEL_OP_TOP_K:
      return used.top_k == scalar.top_k;
    case EMEL_OP_EXPERT_SUM:
      return used.expert_sum == scalar.expert_sum;
    default:
      return false;
  }
}

void count(const Run& run, emel_counters* counters) {
  for (uint64_t i = 0; i < run.plan->desc.n_ops; ++i) {
    const emel_op& op = run.plan->ops[i];
    if (!in_run(op, *run.batch)) continue;
    ++counters->dispatches[op.kind];
    ++(is_fallback(*run.plan, op) ? counters->fallback : counters->optimized);
    if (op.kind != EMEL_OP_MATMUL && op.kind != EMEL_OP_EXPERT_MATMUL) continue;
    for (uint32_t p = 0; p < op.dim[1]; ++p) ++counters->matmul_by_type[run.plan->weights[op.weight[p]].type];
  }
}

}  // namespace
}  // namespace emel

emel_status emel_plan_run(emel_plan* plan, emel_pool* pool, const emel_batch* batch, emel_counters* counters) {
  if (plan == nullptr || pool == nullptr || batch == nullptr) {
    return emel::fail(EMEL_INVALID_ARGUMENT, "run: plan, pool or batch is NULL");
  }
  const emel_status status = emel::verify_batch(*plan, *batch);
  if (status != EMEL_OK) return status;
  pthread_mutex_lock(&plan->run_mutex);
  emel::Run run{plan, pool, batch, 0, false};
  emel::cut_tiles(&run);
  for (uint64_t i = 0; i < plan->desc.n_ops; ++i) plan->next_item[i].store(0, std::memory_order_relaxed);
  if (batch->segment_begin == 0) memset(batch->bad_layer, 0xff, batch->n_tokens * sizeof(int32_t));
  pool->run(emel::run_lane, &run);
  pthread_mutex_unlock(&plan->run_mutex);
  if (counters != nullptr) emel::count(run, counters);
  return EMEL_OK;
}
