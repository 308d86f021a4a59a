// The calling thread's last error text (emel_last_error).
#pragma once

#include "emel.h"

namespace emel {

// Formats the message (printf-style) into the thread's buffer and returns status.
emel_status fail(emel_status status, const char* format, ...) __attribute__((format(printf, 2, 3)));

}  // namespace emel
