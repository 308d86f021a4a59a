// The body of every ISA unit: include a lanes header first, then this, then name the table.
#pragma once

#include "emel.h"
#include "kernels/layout.h"
#include "kernels/table.h"
// clang-format off: each of these uses the names of those before it
#include "kernels/math.h"
#include "kernels/quantize.h"
#include "kernels/layer_norm.h"
#include "kernels/fetch.h"
#include "kernels/matmul.h"
#include "kernels/kv_blocks.h"
#include "kernels/rope.h"
#include "kernels/attention_tile.h"
#include "kernels/attention_scores.h"
#include "kernels/attention_values.h"
#include "kernels/attention_softmax.h"
#include "kernels/attention.h"
#include "kernels/stream.h"
#include "kernels/convolution.h"
#include "kernels/experts.h"
#include "kernels/reduce.h"
#include "kernels/roofline.h"
// clang-format on

namespace emel {
namespace {

template <uint32_t kType>
constexpr void set_blocks(Kernels& kernels) {
  kernels.matmul[kType] = matmul_blocks<kType>;
}

constexpr Kernels all_kernels() {
  Kernels k{};
  k.matmul[EMEL_TYPE_F32] = matmul_floats<float>;
  k.matmul[EMEL_TYPE_F16] = matmul_floats<uint16_t>;
  k.matmul[EMEL_TYPE_BF16] = matmul_floats<Bfloat>;
  set_blocks<EMEL_TYPE_Q4_0>(k);
  set_blocks<EMEL_TYPE_Q4_1>(k);
  set_blocks<EMEL_TYPE_Q5_0>(k);
  set_blocks<EMEL_TYPE_Q5_1>(k);
  set_blocks<EMEL_TYPE_Q8_0>(k);
  set_blocks<EMEL_TYPE_Q2_K>(k);
  set_blocks<EMEL_TYPE_Q3_K>(k);
  set_blocks<EMEL_TYPE_Q4_K>(k);
  set_blocks<EMEL_TYPE_Q5_K>(k);
  set_blocks<EMEL_TYPE_Q6_K>(k);
  set_blocks<EMEL_TYPE_IQ4_NL>(k);
  set_blocks<EMEL_TYPE_IQ4_XS>(k);
  set_blocks<EMEL_TYPE_MXFP4>(k);
  set_blocks<EMEL_TYPE_IQ2_XXS>(k);
  set_blocks<EMEL_TYPE_IQ2_XS>(k);
  set_blocks<EMEL_TYPE_IQ3_XXS>(k);
  set_blocks<EMEL_TYPE_IQ3_S>(k);
  set_blocks<EMEL_TYPE_TQ2_0>(k);
  // Packed alike.
  k.matmul[EMEL_TYPE_IQ1_S] = k.matmul[EMEL_TYPE_IQ2_XXS];
  k.matmul[EMEL_TYPE_IQ1_M] = k.matmul[EMEL_TYPE_IQ2_XS];
  k.matmul[EMEL_TYPE_IQ2_S] = k.matmul[EMEL_TYPE_IQ2_XS];
  k.matmul[EMEL_TYPE_TQ1_0] = k.matmul[EMEL_TYPE_TQ2_0];
  k.rms_norm = rms_norm;
  k.layer_norm = layer_norm;
  k.mean = mean;
  k.quantize = quantize;
  k.joins_planes = kJoinsPlanes;
  k.gated[kSilu] = gated<kSilu>;
  k.gated[kGeluTanh] = gated<kGeluTanh>;
  k.gated[kGeluErf] = gated<kGeluErf>;
  k.gated[kClampedSwish] = gated<kClampedSwish>;
  k.rope_store = rope_store;
  k.attention = attention;
  k.attention_chunk = attention_chunk;
  k.attention_join = attention_join;
  k.adjust = adjust;
  k.add = add;
  k.convolution = convolution;
  k.top_k = top_k;
  k.expert_sum = expert_sum;
  k.argmax = argmax;
  k.largest = largest;
#if defined(EMEL_HAS_PEAKS)
  k.peak_dot = peak_dot;
  k.peak_fma = peak_fma;
#endif
  k.peak_read = peak_read;
  return k;
}

}  // namespace
}  // namespace emel

#define EMEL_KERNEL_TABLE(name)           \
  namespace emel {                        \
  constexpr Kernels name = all_kernels(); \
  }
