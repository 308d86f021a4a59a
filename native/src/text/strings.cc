// Walks arrays of length-prefixed strings (GGUF) without touching Python per string.
#include <stdint.h>
#include <string.h>

#include "core/error.h"
#include "emel_text.h"

namespace {

constexpr uint64_t kLengthBytes = 8;

}  // namespace

emel_status emel_strings_scan(const void* data, uint64_t n_bytes, uint64_t count, uint64_t* consumed,
                              uint64_t* n_scanned, uint64_t* offsets) {
  if ((data == nullptr && n_bytes != 0) || consumed == nullptr || n_scanned == nullptr) {
    return emel::fail(EMEL_INVALID_ARGUMENT, "emel_strings_scan: data, consumed and n_scanned must not be NULL");
  }
  const unsigned char* bytes = static_cast<const unsigned char*>(data);
  uint64_t position = 0;
  for (uint64_t i = 0; i < count; ++i) {
    *consumed = position;
    *n_scanned = i;
    if (offsets != nullptr) offsets[i] = position;
    if (n_bytes - position < kLengthBytes) {
      return emel::fail(EMEL_OUT_OF_BOUNDS, "string %llu of %llu has no room for its length",
                        static_cast<unsigned long long>(i), static_cast<unsigned long long>(count));
    }
    uint64_t length;
    memcpy(&length, bytes + position, kLengthBytes);
    position += kLengthBytes;
    if (length > n_bytes - position) {
      return emel::fail(EMEL_OUT_OF_BOUNDS, "string %llu of %llu claims %llu bytes, %llu remain",
                        static_cast<unsigned long long>(i), static_cast<unsigned long long>(count),
                        static_cast<unsigned long long>(length), static_cast<unsigned long long>(n_bytes - position));
    }
    position += length;
  }
  if (offsets != nullptr) offsets[count] = position;
  *consumed = position;
  *n_scanned = count;
  return EMEL_OK;
}
