"""ctypes declarations of the SentencePiece-BPE part of native/include/emel_text.h."""

from __future__ import annotations

import ctypes

from emel._native.library import LIBRARY

_U64 = ctypes.c_uint64
_HANDLE = ctypes.c_void_p

spm_create = LIBRARY.emel_spm_create
spm_create.restype = ctypes.c_int32
spm_create.argtypes = (_HANDLE, ctypes.c_void_p, ctypes.c_int32, ctypes.POINTER(_HANDLE))

spm_destroy = LIBRARY.emel_spm_destroy
spm_destroy.restype = None
spm_destroy.argtypes = (_HANDLE,)

spm_encode = LIBRARY.emel_spm_encode
spm_encode.restype = ctypes.c_int32
spm_encode.argtypes = (_HANDLE, ctypes.c_char_p, _U64, ctypes.c_void_p, _U64, ctypes.POINTER(_U64))
