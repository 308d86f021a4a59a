"""ctypes declarations of the Unigram and PLaMo-2 parts of native/include/emel_text.h."""

from __future__ import annotations

import ctypes

from emel._native.library import LIBRARY

_U8_P = ctypes.c_char_p
_U64 = ctypes.c_uint64
_U64_P = ctypes.POINTER(ctypes.c_uint64)
_HANDLE = ctypes.c_void_p

ADD_SPACE = 1
REMOVE_EXTRA_SPACES = 2


class UnigramDesc(ctypes.Structure):
    """emel_unigram_desc."""

    _fields_ = (
        ("trie", _HANDLE),
        ("scores", ctypes.c_void_p),
        ("charsmap", _U8_P),
        ("charsmap_bytes", _U64),
        ("unknown", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
    )


unigram_create = LIBRARY.emel_unigram_create
unigram_create.restype = ctypes.c_int32
unigram_create.argtypes = (ctypes.POINTER(UnigramDesc), ctypes.POINTER(_HANDLE))

unigram_destroy = LIBRARY.emel_unigram_destroy
unigram_destroy.restype = None
unigram_destroy.argtypes = (_HANDLE,)

unigram_encode = LIBRARY.emel_unigram_encode
unigram_encode.restype = ctypes.c_int32
unigram_encode.argtypes = (_HANDLE, _U8_P, _U64, ctypes.c_void_p, _U64, _U64_P)

plamo2_encode = LIBRARY.emel_plamo2_encode
plamo2_encode.restype = ctypes.c_int32
plamo2_encode.argtypes = (_HANDLE, ctypes.c_void_p, _U8_P, _U64, ctypes.c_void_p, _U64, _U64_P)
