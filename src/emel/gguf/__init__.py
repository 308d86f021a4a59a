"""GGUF files: a pure parser, typed metadata, and the machine that reads a file."""

from emel.gguf.arrays import StringArray
from emel.gguf.errors import GgufError, MetadataError
from emel.gguf.file import GgufFile, open_gguf
from emel.gguf.metadata import Metadata
from emel.gguf.overrides import Scalar, parse_override
from emel.gguf.tensors import TensorInfo

__all__ = [
    "GgufError",
    "GgufFile",
    "Metadata",
    "MetadataError",
    "Scalar",
    "StringArray",
    "TensorInfo",
    "open_gguf",
    "parse_override",
]
