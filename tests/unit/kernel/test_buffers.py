from __future__ import annotations

import ctypes
import mmap
from array import array

import pytest

from emel.kernel.buffers import Memory, address_of, int32_array


def test_address_of_reads_what_lies_there() -> None:
    for buffer in (b"abc", bytearray(b"abc"), memoryview(b"xabc")[1:], array("b", b"abc")):
        assert ctypes.string_at(address_of(buffer), 3) == b"abc"


def test_address_of_accepts_read_only_mappings() -> None:
    mapping = mmap.mmap(-1, 4096, access=mmap.ACCESS_READ)
    view = memoryview(mapping)
    assert address_of(view[64:]) == address_of(view) + 64
    view.release()
    mapping.close()


def test_address_of_leaves_the_buffer_free() -> None:
    buffer = bytearray(b"abc")
    address_of(buffer)
    buffer.append(1)  # BufferError if the buffer were still exported


def test_address_of_refuses_what_is_not_contiguous() -> None:
    with pytest.raises(BufferError):
        address_of(memoryview(b"abcdef")[::2])
    with pytest.raises(TypeError):
        address_of(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("is_huge", [False, True])
def test_memory_is_zeroed_aligned_and_writable(is_huge: bool) -> None:
    memory = Memory(3 << 20, is_huge=is_huge)
    assert memory.address % 4096 == 0
    view = memory.view("i", 64, 8)
    assert view.tolist() == [0, 0]
    view[1] = 7
    assert ctypes.string_at(memory.address + 68, 1) == b"\x07"
    view.release()
    memory.close()
    assert memory.is_closed
    assert memory.address == 0
    memory.close()


@pytest.mark.parametrize("n_bytes", [0, -1])
def test_memory_refuses_no_bytes(n_bytes: int) -> None:
    with pytest.raises(ValueError, match=f"cannot allocate {n_bytes} bytes"):
        Memory(n_bytes)


def test_memory_that_the_system_has_not_is_a_memory_error() -> None:
    with pytest.raises(MemoryError, match="cannot allocate"):
        Memory(1 << 62)


def test_memory_view_stays_inside() -> None:
    memory = Memory(100)
    for offset, n_bytes in ((0, 101), (101, 0), (-1, 4)):
        with pytest.raises(ValueError, match="outside a memory of 100 bytes"):
            memory.view(offset=offset, n_bytes=n_bytes)
    memory.close()


def test_memory_in_use_stays_until_the_last_view_is_gone() -> None:
    memory = Memory(100)
    view = memory.view()
    memory.close()
    assert memory.is_closed
    view[99] = 7
    assert view[99] == 7
    with pytest.raises(ValueError, match="this memory was given back"):
        memory.view()


def test_int32_array_is_indexable_and_zero() -> None:
    values = int32_array(3)
    values[2] = -5
    assert values.tolist() == [0, 0, -5]
    assert len(int32_array(0)) == 1
