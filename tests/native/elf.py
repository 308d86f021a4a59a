"""Symbols and needed libraries of 64-bit little-endian ELF files (https://refspecs.linuxfoundation.org/elf/)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

SYMTAB, DYNAMIC, DYNSYM = 2, 6, 11  # sh_type
DT_NEEDED = 1
LOCAL, GLOBAL, WEAK, UNIQUE = 0, 1, 2, 10  # binding
UNDEFINED = 0  # st_shndx


class Section(NamedTuple):
    """One section header."""

    type: int
    offset: int
    size: int
    link: int


class Symbol(NamedTuple):
    """One symbol; visibility 0 is default, 2 hidden."""

    name: str
    binding: int
    visibility: int
    section: int

    @property
    def is_defined(self) -> bool:
        return self.section != UNDEFINED


class Elf:
    """An object file or a shared library, read whole."""

    def __init__(self, path: Path) -> None:
        self._data = data = path.read_bytes()
        assert data[:6] == b"\x7fELF\x02\x01", path
        at, entry_size, count = (
            struct.unpack_from(kind, data, offset)[0] for kind, offset in (("<Q", 40), ("<H", 58), ("<H", 60))
        )
        self._sections = [self._section(at + index * entry_size) for index in range(count)]

    def symbols(self, table: int = SYMTAB) -> list[Symbol]:
        """All named symbols of the symbol table, or of the dynamic one."""
        found = []
        for section in self._sections:
            if section.type != table:
                continue
            for at in range(section.offset, section.offset + section.size, 24):
                name_at, info, other, index = struct.unpack_from("<IBBH", self._data, at)
                name = self._string(section.link, name_at)
                if name:
                    found.append(Symbol(name, info >> 4, other & 3, index))
        return found

    def needed(self) -> list[str]:
        """The shared libraries this one asks for."""
        return [
            self._string(section.link, value)
            for section in self._sections
            if section.type == DYNAMIC
            for tag, value in struct.iter_unpack("<qQ", self._data[section.offset : section.offset + section.size])
            if tag == DT_NEEDED
        ]

    def _section(self, at: int) -> Section:
        _, type_, _, _, offset, size, link, *_ = struct.unpack_from("<IIQQQQIIQQ", self._data, at)
        return Section(type_, offset, size, link)

    def _string(self, table: int, at: int) -> str:
        begin = self._sections[table].offset + at
        return self._data[begin : self._data.index(b"\0", begin)].decode()
