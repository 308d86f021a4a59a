"""ctypes declarations of the BPE part of native/include/emel_text.h."""

from __future__ import annotations

import ctypes

from emel._native.library import LIBRARY

_U64 = ctypes.c_uint64
_U64_P = ctypes.POINTER(ctypes.c_uint64)
_HANDLE = ctypes.c_void_p


class BpeDesc(ctypes.Structure):
    """emel_bpe_desc."""

    _fields_ = (
        ("vocab", _HANDLE),
        ("merges", ctypes.c_void_p),
        ("merges_bytes", _U64),
        ("n_merges", _U64),
        ("ignore_merges", ctypes.c_uint32),
        ("unknown", ctypes.c_int32),
    )


bpe_create = LIBRARY.emel_bpe_create
bpe_create.restype = ctypes.c_int32
bpe_create.argtypes = (ctypes.POINTER(BpeDesc), ctypes.POINTER(_HANDLE))

bpe_destroy = LIBRARY.emel_bpe_destroy
bpe_destroy.restype = None
bpe_destroy.argtypes = (_HANDLE,)

bpe_encode = LIBRARY.emel_bpe_encode
bpe_encode.restype = ctypes.c_int32
bpe_encode.argtypes = (_HANDLE, ctypes.c_char_p, _U64, ctypes.c_void_p, _U64, ctypes.c_void_p, _U64, _U64_P)
