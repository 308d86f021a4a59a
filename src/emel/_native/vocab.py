"""ctypes declarations of the vocabulary part of native/include/emel_text.h."""

from __future__ import annotations

import ctypes

from emel._native.library import LIBRARY

_U64 = ctypes.c_uint64
_U64_P = ctypes.POINTER(ctypes.c_uint64)
_HANDLE = ctypes.c_void_p

TOKEN_NORMAL = 1
TOKEN_UNKNOWN = 2
TOKEN_CONTROL = 3
TOKEN_USER_DEFINED = 4
TOKEN_UNUSED = 5
TOKEN_BYTE = 6

SPELLING_BYTE_LEVEL = 0
SPELLING_SPACE_MARK = 1
SPELLING_ESCAPED = 2
SPELLING_PLAIN = 3


class VocabDesc(ctypes.Structure):
    """emel_vocab_desc."""

    _fields_ = (
        ("tokens", ctypes.c_void_p),
        ("tokens_bytes", _U64),
        ("n_tokens", _U64),
        ("types", ctypes.c_void_p),
        ("spelling", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    )


vocab_create = LIBRARY.emel_vocab_create
vocab_create.restype = ctypes.c_int32
vocab_create.argtypes = (ctypes.POINTER(VocabDesc), ctypes.POINTER(_HANDLE))

vocab_destroy = LIBRARY.emel_vocab_destroy
vocab_destroy.restype = None
vocab_destroy.argtypes = (_HANDLE,)

vocab_mark_control = LIBRARY.emel_vocab_mark_control
vocab_mark_control.restype = ctypes.c_int32
vocab_mark_control.argtypes = (_HANDLE, ctypes.c_void_p, _U64)

vocab_decode = LIBRARY.emel_vocab_decode
vocab_decode.restype = ctypes.c_int32
vocab_decode.argtypes = (_HANDLE, ctypes.c_void_p, _U64, ctypes.c_void_p, _U64, _U64_P)

vocab_find = LIBRARY.emel_vocab_find
vocab_find.restype = ctypes.c_int32
vocab_find.argtypes = (_HANDLE, ctypes.c_char_p, _U64)

vocab_ids_of_types = LIBRARY.emel_vocab_ids_of_types
vocab_ids_of_types.restype = ctypes.c_int32
vocab_ids_of_types.argtypes = (_HANDLE, ctypes.c_uint32, ctypes.c_void_p, _U64, _U64_P)
