"""The native library and its C ABI (native/include/emel.h); imported only by the wrappers that own a native loop."""

from emel._native.library import LIBRARY, NativeError, check, library_path

__all__ = ["LIBRARY", "NativeError", "check", "library_path"]
