"""A platform that counts its calls, fails the Nth, and knows what it left open."""

from __future__ import annotations

import errno
import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from emel.io.platform import Platform

if TYPE_CHECKING:
    import mmap


class FaultyPlatform(Platform):
    """The real calls; number `fail_at` (from 1) raises OSError instead, close excepted: that closes and then raises."""

    def __init__(self, fail_at: int = 0, code: int = errno.EIO) -> None:
        self.n_calls = 0
        self.fail_at = fail_at
        self.code = code
        self.calls: list[str] = []
        self.open_descriptors: set[int] = set()
        self.mappings: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()

    @property
    def has_failed(self) -> bool:
        return 0 < self.fail_at <= self.n_calls

    def step(self, name: str) -> None:
        self.n_calls += 1
        self.calls.append(name)
        if self.n_calls == self.fail_at:
            raise OSError(self.code, os.strerror(self.code))

    def open(self, path: str) -> int:
        self.step("open")
        descriptor = super().open(path)
        self.open_descriptors.add(descriptor)
        return descriptor

    def open_direct(self, path: str) -> int:
        self.step("open_direct")
        descriptor = super().open_direct(path)
        self.open_descriptors.add(descriptor)
        return descriptor

    def status(self, descriptor: int) -> os.stat_result:
        self.step("status")
        return super().status(descriptor)

    def map(self, descriptor: int, n_bytes: int) -> mmap.mmap:
        self.step("map")
        mapping = super().map(descriptor, n_bytes)
        self.mappings.add(mapping)
        return mapping

    def unmap(self, mapping: mmap.mmap) -> None:
        self.step("unmap")
        super().unmap(mapping)

    def mapped_size(self, mapping: mmap.mmap) -> int:
        self.step("mapped_size")
        return super().mapped_size(mapping)

    def advise(self, mapping: mmap.mmap, advice: str, offset: int, n_bytes: int) -> None:
        self.step("advise")
        super().advise(mapping, advice, offset, n_bytes)

    def read_into(self, descriptor: int, target: memoryview, offset: int) -> int:
        self.step("read_into")
        return super().read_into(descriptor, target, offset)

    def close(self, descriptor: int) -> None:
        super().close(descriptor)
        self.open_descriptors.remove(descriptor)
        self.step("close")

    def assert_nothing_left(self, n_quarantined: int = 0) -> None:
        assert not self.open_descriptors
        assert sum(not mapping.closed for mapping in self.mappings) == n_quarantined


def n_open_descriptors() -> int:
    """Descriptors this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
