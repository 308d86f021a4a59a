"""Byte sources: a file's bytes, mapped or copied, as machines."""
