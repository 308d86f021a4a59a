"""Finds and loads libemel once, and turns its status codes into exceptions.

The library lies in this folder in every wheel. `EMEL_LIBRARY` names another build of it (sanitizers, a source tree).
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

ABI_VERSION = 0xB70A9739  # of emel.h

_NAMES = {"win32": "emel.dll", "darwin": "libemel.dylib"}


class NativeError(RuntimeError):
    """A native call refused its arguments or failed; `status` is the emel_status of emel.h."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def library_path() -> Path:
    """The library that is (or would be) loaded."""
    override = os.environ.get("EMEL_LIBRARY")
    return Path(override) if override else Path(__file__).parent / _NAMES.get(sys.platform, "libemel.so")


def _load() -> ctypes.CDLL:
    path = library_path()
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(
            f"cannot load the native library {path}: {error}; reinstall emel, or set EMEL_LIBRARY to a built libemel"
        ) from error
    library.emel_abi_version.restype = ctypes.c_uint32
    found = library.emel_abi_version()
    if found != ABI_VERSION:
        raise ImportError(
            f"{path} has ABI version {found:#010x}, this package needs {ABI_VERSION:#010x}: reinstall emel"
        )
    library.emel_last_error.restype = ctypes.c_char_p
    return library


LIBRARY = _load()


def check(status: int) -> None:
    """Raises NativeError with the library's own text unless status is EMEL_OK."""
    if status:
        raise NativeError(status, LIBRARY.emel_last_error().decode("utf-8", "replace"))
