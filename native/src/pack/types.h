// From a block type that is known at run time to code that is compiled for it.
#pragma once

#include <stdint.h>

#include "emel.h"

namespace emel {
namespace {

// Calls run.operator()<type>(); does nothing for what is no block type.
template <class Run>
void for_block_type(uint32_t type, Run run) {
  switch (type) {
    case EMEL_TYPE_Q4_0:
      return run.template operator()<EMEL_TYPE_Q4_0>();
    case EMEL_TYPE_Q4_1:
      return run.template operator()<EMEL_TYPE_Q4_1>();
    case EMEL_TYPE_Q5_0:
      return run.template operator()<EMEL_TYPE_Q5_0>();
    case EMEL_TYPE_Q5_1:
      return run.template operator()<EMEL_TYPE_Q5_1>();
    case EMEL_TYPE_Q8_0:
      return run.template operator()<EMEL_TYPE_Q8_0>();
    case EMEL_TYPE_Q2_K:
      return run.template operator()<EMEL_TYPE_Q2_K>();
    case EMEL_TYPE_Q3_K:
      return run.template operator()<EMEL_TYPE_Q3_K>();
    case EMEL_TYPE_Q4_K:
      return run.template operator()<EMEL_TYPE_Q4_K>();
    case EMEL_TYPE_Q5_K:
      return run.template operator()<EMEL_TYPE_Q5_K>();
    case EMEL_TYPE_Q6_K:
      return run.template operator()<EMEL_TYPE_Q6_K>();
    case EMEL_TYPE_IQ1_S:
      return run.template operator()<EMEL_TYPE_IQ1_S>();
    case EMEL_TYPE_IQ1_M:
      return run.template operator()<EMEL_TYPE_IQ1_M>();
    case EMEL_TYPE_IQ2_XXS:
      return run.template operator()<EMEL_TYPE_IQ2_XXS>();
    case EMEL_TYPE_IQ2_XS:
      return run.template operator()<EMEL_TYPE_IQ2_XS>();
    case EMEL_TYPE_IQ2_S:
      return run.template operator()<EMEL_TYPE_IQ2_S>();
    case EMEL_TYPE_IQ3_XXS:
      return run.template operator()<EMEL_TYPE_IQ3_XXS>();
    case EMEL_TYPE_IQ3_S:
      return run.template operator()<EMEL_TYPE_IQ3_S>();
    case EMEL_TYPE_IQ4_NL:
      return run.template operator()<EMEL_TYPE_IQ4_NL>();
    case EMEL_TYPE_IQ4_XS:
      return run.template operator()<EMEL_TYPE_IQ4_XS>();
    case EMEL_TYPE_MXFP4:
      return run.template operator()<EMEL_TYPE_MXFP4>();
    case EMEL_TYPE_TQ1_0:
      return run.template operator()<EMEL_TYPE_TQ1_0>();
    case EMEL_TYPE_TQ2_0:
      return run.template operator()<EMEL_TYPE_TQ2_0>();
    default:
      return;
  }
}

}  // namespace
}  // namespace emel
