"""ctypes declarations of the trie part of native/include/emel_text.h."""

from __future__ import annotations

import ctypes

from emel._native.library import LIBRARY

_U8_P = ctypes.c_char_p
_U64 = ctypes.c_uint64
_U64_P = ctypes.POINTER(ctypes.c_uint64)
_HANDLE = ctypes.c_void_p


class Match(ctypes.Structure):
    """emel_match."""

    _fields_ = (
        ("begin", _U64),
        ("end", _U64),
        ("id", ctypes.c_int32),
        ("reserved", ctypes.c_uint32),
    )


trie_create = LIBRARY.emel_trie_create
trie_create.restype = ctypes.c_int32
trie_create.argtypes = (_HANDLE, ctypes.c_uint32, ctypes.POINTER(_HANDLE))

trie_destroy = LIBRARY.emel_trie_destroy
trie_destroy.restype = None
trie_destroy.argtypes = (_HANDLE,)

trie_find = LIBRARY.emel_trie_find
trie_find.restype = ctypes.c_int32
trie_find.argtypes = (_HANDLE, _U8_P, _U64, _U64_P, ctypes.c_void_p, _U64, _U64_P)

trie_encode = LIBRARY.emel_trie_encode
trie_encode.restype = ctypes.c_int32
trie_encode.argtypes = (_HANDLE, _U8_P, _U64, ctypes.c_int32, ctypes.c_void_p, _U64, _U64_P)

trie_encode_words = LIBRARY.emel_trie_encode_words
trie_encode_words.restype = ctypes.c_int32
trie_encode_words.argtypes = (
    _HANDLE,
    _U8_P,
    _U64,
    ctypes.c_void_p,
    _U64,
    ctypes.c_int32,
    ctypes.c_void_p,
    _U64,
    _U64_P,
)
