#include "core/error.h"

#include <stdarg.h>
#include <stdio.h>

namespace emel {
namespace {

constexpr int kMessageBytes = 512;
thread_local char message[kMessageBytes] = "";

}  // namespace

emel_status fail(emel_status status, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, kMessageBytes, format, arguments);
  va_end(arguments);
  return status;
}

}  // namespace emel

uint32_t emel_abi_version(void) { return EMEL_ABI_VERSION; }
uint32_t emel_numerics_version(void) { return EMEL_NUMERICS_VERSION; }
const char* emel_last_error(void) { return emel::message; }
