"""ctypes declarations of the text part of native/include/emel.h."""

from __future__ import annotations

import ctypes

from emel._native.library import LIBRARY

_U8_P = ctypes.c_char_p
_U64 = ctypes.c_uint64
_U64_P = ctypes.POINTER(ctypes.c_uint64)
_HANDLE = ctypes.c_void_p

TOKEN_NORMAL = 1
TOKEN_UNKNOWN = 2
TOKEN_CONTROL = 3
TOKEN_USER_DEFINED = 4
TOKEN_UNUSED = 5
TOKEN_BYTE = 6


class BpeDesc(ctypes.Structure):
    """emel_bpe_desc."""

    _fields_ = (
        ("tokens", _U8_P),
        ("tokens_bytes", _U64),
        ("n_tokens", _U64),
        ("types", ctypes.c_char_p),
        ("merges", _U8_P),
        ("merges_bytes", _U64),
        ("n_merges", _U64),
        ("ignore_merges", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    )


bpe_create = LIBRARY.emel_bpe_create
bpe_create.restype = ctypes.c_int32
bpe_create.argtypes = (ctypes.POINTER(BpeDesc), ctypes.POINTER(_HANDLE))

bpe_destroy = LIBRARY.emel_bpe_destroy
bpe_destroy.restype = None
bpe_destroy.argtypes = (_HANDLE,)

bpe_encode = LIBRARY.emel_bpe_encode
bpe_encode.restype = ctypes.c_int32
bpe_encode.argtypes = (_HANDLE, _U8_P, _U64, ctypes.c_void_p, _U64, ctypes.c_void_p, _U64, _U64_P)

bpe_decode = LIBRARY.emel_bpe_decode
bpe_decode.restype = ctypes.c_int32
bpe_decode.argtypes = (_HANDLE, ctypes.c_void_p, _U64, ctypes.c_void_p, _U64, _U64_P)

bpe_find = LIBRARY.emel_bpe_find
bpe_find.restype = ctypes.c_int32
bpe_find.argtypes = (_HANDLE, _U8_P, _U64)

bpe_ids_of_types = LIBRARY.emel_bpe_ids_of_types
bpe_ids_of_types.restype = ctypes.c_int32
bpe_ids_of_types.argtypes = (_HANDLE, ctypes.c_uint32, ctypes.c_void_p, _U64, _U64_P)
