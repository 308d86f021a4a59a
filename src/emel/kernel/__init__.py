"""The thin Python face of the native library: CPU routes and lanes, packing, sizes, numeric helpers."""
