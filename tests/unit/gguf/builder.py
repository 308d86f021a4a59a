"""Writes GGUF bytes field by field, right or wrong, independently of the parser and of the gguf package."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
SCALAR_FORMATS = {
    U8: "<B",
    I8: "<b",
    U16: "<H",
    I16: "<h",
    U32: "<I",
    I32: "<i",
    F32: "<f",
    BOOL: "<?",
    U64: "<Q",
    I64: "<q",
    F64: "<d",
}


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return u64(len(raw)) + raw


def scalar(type_id: int, value: object) -> bytes:
    return text(value) if type_id == STRING else struct.pack(SCALAR_FORMATS[type_id], value)  # type: ignore[arg-type]


def entry(key: str | bytes, type_id: int, value: object) -> bytes:
    return text(key) + u32(type_id) + scalar(type_id, value)


def array(key: str | bytes, element: int, values: list[object], count: int | None = None) -> bytes:
    body = b"".join(scalar(element, each) for each in values)
    return text(key) + u32(ARRAY) + u32(element) + u64(len(values) if count is None else count) + body


def tensor(
    name: str | bytes = "t",
    sizes: tuple[int, ...] = (8,),
    type_id: int = 0,
    offset: int = 0,
    n_dimensions: int | None = None,
) -> bytes:
    """A tensor description; sizes in GGUF's order, fastest first."""
    n = len(sizes) if n_dimensions is None else n_dimensions
    return text(name) + u32(n) + b"".join(map(u64, sizes)) + u32(type_id) + u64(offset)


@dataclass
class Build:
    """A whole file; the counts follow the lists unless given."""

    entries: list[bytes] = field(default_factory=list)
    tensors: list[bytes] = field(default_factory=list)
    data: bytes = b""
    version: int = 3
    alignment: int = 32
    n_tensors: int | None = None
    n_entries: int | None = None

    def head(self) -> bytes:
        n_tensors = len(self.tensors) if self.n_tensors is None else self.n_tensors
        n_entries = len(self.entries) if self.n_entries is None else self.n_entries
        counts = struct.pack("<IQQ", self.version, n_tensors % 2**64, n_entries % 2**64)
        return b"GGUF" + counts + b"".join(self.entries) + b"".join(self.tensors)

    def bytes(self) -> bytes:
        head = self.head()
        return head + bytes(-len(head) % self.alignment) + self.data


def small() -> Build:
    """Two tensors and one value of most types."""
    return Build(
        entries=[
            entry("general.architecture", STRING, "llama"),
            entry("a.u32", U32, 7),
            entry("a.f32", F32, 0.5),
            entry("a.yes", BOOL, True),
            array("a.names", STRING, ["x", "", "né"]),
            array("a.ints", I32, [1, -2, 3]),
        ],
        tensors=[tensor("w", (32, 2), 2, 0), tensor("b", (3,), 0, 64)],
        data=bytes(range(36)) + bytes(28) + struct.pack("<3f", 1, 2, 3),
    )
