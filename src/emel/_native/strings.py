"""ctypes declarations of the string-array part of native/include/emel_text.h."""

from __future__ import annotations

import ctypes

from emel._native.library import LIBRARY

_U64_P = ctypes.POINTER(ctypes.c_uint64)

strings_scan = LIBRARY.emel_strings_scan
strings_scan.restype = ctypes.c_int32
strings_scan.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, _U64_P, _U64_P, ctypes.c_void_p)
