"""The read lanes: every request completes once, whatever happens to the file, the calls or the lanes."""

from __future__ import annotations

import ctypes
import errno
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from emel._native import NativeError
from emel._native.reader import AdviseCall
from emel.io.errors import SourceError
from emel.io.lanes import N_LANES, LaneCalls, Part, ReadLanes, Request
from emel.io.parts import FilePart, close_parts, open_parts
from emel.io.platform import SYSTEM
from emel.kernel.buffers import Memory
from unit.tensor.layered_file import FaultyReads, LayeredFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHUNK = 1 << 16


class Bench:
    """Lanes over a layered file, a request for each layer with memory of its own, and what was delivered."""

    def __init__(self, file: LayeredFile, calls: LaneCalls | None = None) -> None:
        self.file = file
        self.delivered: list[tuple[int, SourceError | None]] = []
        self.arrived = threading.Semaphore(0)
        self.opened = open_parts(SYSTEM, file.parts)
        self.memory = Memory(1 << 20)
        self.requests = []
        offset = 0
        for unit in file.units:
            parts = []
            for extent in unit:
                parts.append(
                    Part(
                        extent.offset,
                        self.memory.address + offset,
                        extent.packed_bytes,
                        extent.rows,
                        extent.cols,
                        int(extent.type),
                    )
                )
                offset += -(-extent.packed_bytes // 64) * 64
            self.requests.append(Request(parts))
        self.lanes = ReadLanes(self.opened, self.deliver, chunk_bytes=CHUNK, calls=calls)

    def deliver(self, ticket: int, error: SourceError | None) -> None:
        self.delivered.append((ticket, error))
        self.arrived.release()

    def wait(self, n: int) -> None:
        for _ in range(n):
            assert self.arrived.acquire(timeout=10)

    def content(self, layer: int) -> list[bytes]:
        return [ctypes.string_at(part.dst, part.dst_bytes) for part in self.requests[layer].array]

    def expected(self, layer: int) -> list[bytes]:
        return [self.file.packed[extent.name] for extent in self.file.units[layer]]

    def close(self) -> None:
        self.lanes.close()
        close_parts(SYSTEM, self.opened)
        self.memory.close()


class GatedReads(FaultyReads):
    """Reads that wait for a permit each."""

    def __init__(self, path: Path, n_permits: int) -> None:
        super().__init__(path)
        self.gate, self.begun = threading.Semaphore(n_permits), threading.Semaphore(0)

    def read(self, descriptor: int, address: int, n_bytes: int, offset: int) -> int:
        self.begun.release()
        assert self.gate.acquire(timeout=10)
        return super().read(descriptor, address, n_bytes, offset)


@pytest.fixture
def file(tmp_path: Path) -> LayeredFile:
    return LayeredFile(tmp_path / "layers")


@pytest.fixture
def bench(file: LayeredFile) -> Iterator[Bench]:
    bench = Bench(file)
    yield bench
    bench.close()


def test_lanes_read_and_pack_every_request_once(bench: Bench) -> None:
    for ticket, request in enumerate(bench.requests):
        bench.lanes.submit(ticket, request, is_urgent=ticket % 2 == 0)
    bench.wait(6)
    assert Counter(bench.delivered) == Counter((ticket, None) for ticket in range(6))
    assert all(bench.content(layer) == bench.expected(layer) for layer in range(6))
    totals = bench.lanes.totals()
    read = sum(extent.n_bytes for unit in bench.file.units for extent in unit)
    assert read <= totals.n_bytes <= read + 6 * 100


def test_lanes_put_short_reads_together_and_repeat_interrupted_ones(file: LayeredFile) -> None:
    reads = FaultyReads(file.path)

    def read(descriptor: int, address: int, n_bytes: int, offset: int) -> int:
        if reads.n_calls % 3 == 1:
            reads.n_calls += 1
            return -errno.EINTR
        return reads.read(descriptor, address, min(n_bytes, 100), offset)

    bench = Bench(file, LaneCalls(read=read))
    bench.lanes.submit(7, bench.requests[2])
    bench.wait(1)
    assert bench.delivered == [(7, None)]
    assert bench.content(2) == bench.expected(2)
    bench.close()


def test_lanes_advise_ahead_and_behind(file: LayeredFile) -> None:
    advice: list[tuple[int, int, bool]] = []
    bench = Bench(file, LaneCalls(advise=lambda _, offset, n, is_ahead: advice.append((offset, n, is_ahead))))
    bench.lanes.submit(0, bench.requests[0])
    bench.wait(1)
    begin, end = file.units[0][0].offset, file.units[0][1].end
    assert advice == [(begin, end - begin, False)]  # nothing more is wanted, so nothing is fetched
    bench.close()


def test_lanes_advise_what_is_wanted_next_wherever_it_lies(file: LayeredFile) -> None:
    advice: list[tuple[int, int, bool]] = []
    reads = GatedReads(file.path, 0)
    bench = Bench(
        file, LaneCalls(reads.read, advise=lambda _, offset, n, is_ahead: advice.append((offset, n, is_ahead)))
    )
    order = (0, 5, 2, 1, 3, 4)
    for place, ticket in enumerate(order):
        bench.lanes.submit(ticket, bench.requests[ticket])
        if place < N_LANES:  # a lane each is at them
            assert reads.begun.acquire(timeout=10)
    reads.gate.release(6)
    bench.wait(6)
    spans = {ticket: (file.units[ticket][0].offset, file.units[ticket][1].end) for ticket in order}
    ahead = {(offset, offset + n) for offset, n, is_ahead in advice if is_ahead}
    assert spans[4] in ahead
    assert ahead <= {spans[3], spans[4]}
    bench.close()


def test_advice_that_is_refused_changes_nothing(file: LayeredFile, monkeypatch: pytest.MonkeyPatch) -> None:
    n_refused = []

    def refuse(*_arguments: object) -> int:
        n_refused.append(1)
        return errno.EINVAL

    monkeypatch.setattr("emel.io.lanes.AdviseCall", lambda _: AdviseCall(refuse))
    bench = Bench(file, LaneCalls(advise=lambda *_: None))
    for ticket, request in enumerate(bench.requests):
        bench.lanes.submit(ticket, request)
    bench.wait(6)
    assert len(n_refused) >= 6
    assert all(error is None for _, error in bench.delivered)
    assert all(bench.content(layer) == bench.expected(layer) for layer in range(6))
    bench.close()


def test_lanes_read_of_several_files_and_name_the_one_that_failed(file: LayeredFile, tmp_path: Path) -> None:
    content, half = file.path.read_bytes(), file.units[3][0].offset
    names = [tmp_path / "first", tmp_path / "second"]
    names[0].write_bytes(content[:half])
    names[1].write_bytes(content[half:])
    opened = open_parts(SYSTEM, [FilePart(str(name), name.stat().st_size) for name in names])
    bench = Bench(file)
    lanes = ReadLanes(opened, bench.deliver, chunk_bytes=CHUNK)
    parts = [
        Part(
            part.offset - half if layer >= 3 else part.offset,
            part.dst,
            part.dst_bytes,
            part.rows,
            part.cols,
            part.type,
            int(layer >= 3),
        )
        for layer in range(6)
        for part in bench.requests[layer].array
    ]
    lanes.submit(0, Request(parts))
    bench.wait(1)
    assert bench.delivered == [(0, None)]
    assert all(bench.content(layer) == bench.expected(layer) for layer in range(6))
    names[1].write_bytes(b"")
    lanes.submit(1, Request(parts))
    bench.wait(1)
    assert str(bench.delivered[1][1]).startswith(f"{str(names[1])!r} shrank from {len(content) - half} to at most 0 ")
    lanes.close()
    close_parts(SYSTEM, opened)
    bench.close()


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES])
def test_a_failed_read_ends_its_request_with_the_reason(file: LayeredFile, code: int) -> None:
    bench = Bench(file, FaultyReads(file.path, 1, code=code).calls)
    bench.lanes.submit(0, bench.requests[1])
    bench.wait(1)
    ((ticket, error),) = bench.delivered
    assert ticket == 0
    assert isinstance(error, SourceError)
    assert str(error).startswith(f"cannot read {str(file.path)!r} at byte {file.units[1][0].offset}: ")
    bench.lanes.submit(1, bench.requests[1])
    bench.wait(1)
    assert bench.delivered[1] == (1, None)
    bench.close()


def test_a_file_that_ends_early_is_an_error_not_a_signal(file: LayeredFile) -> None:
    bench = Bench(file, LaneCalls(read=lambda *_: 0))
    bench.lanes.submit(0, bench.requests[0])
    bench.wait(1)
    assert "shrank from" in str(bench.delivered[0][1])
    bench.close()


def test_close_delivers_every_request_in_flight(file: LayeredFile) -> None:
    for n_read in range(6 - N_LANES + 1):
        reads = GatedReads(file.path, n_read)
        bench = Bench(file, LaneCalls(read=reads.read))
        for ticket, request in enumerate(bench.requests):
            bench.lanes.submit(ticket, request)
        bench.wait(n_read)
        for _ in range(n_read + N_LANES):
            assert reads.begun.acquire(timeout=10)
        closer = threading.Thread(target=bench.close)
        closer.start()
        bench.wait(6 - N_LANES - n_read)  # what no lane had begun
        reads.gate.release(N_LANES)  # what the lanes were at
        closer.join(10)
        assert not closer.is_alive()
        assert sorted(ticket for ticket, _ in bench.delivered) == list(range(6))
        cancelled = [error for _, error in bench.delivered if error is not None]
        assert len(cancelled) == 6 - N_LANES - n_read
        assert all("was cancelled" in str(error) for error in cancelled)


def test_lanes_closed_by_their_own_thread_end_before_anything_is_given_back(file: LayeredFile) -> None:
    """As the collector closes them when it runs there: nobody joins, and no lane writes once `close` returned."""
    reads = GatedReads(file.path, 0)
    bench = Bench(file)
    is_closed = threading.Event()
    content: list[list[bytes]] = []

    def close(ticket: int, error: SourceError | None) -> None:
        bench.delivered.append((ticket, error))
        reads.gate.release(100)  # the lanes are in the midst of their work
        bench.lanes.close()
        content.append([part for layer in range(6) for part in bench.content(layer)])
        is_closed.set()

    bench.lanes.close()
    bench.lanes = ReadLanes(bench.opened, close, chunk_bytes=CHUNK, calls=LaneCalls(read=reads.read))
    for ticket, request in enumerate(bench.requests):
        bench.lanes.submit(ticket, request)
    reads.gate.release()  # one, now that nothing is to be submitted any more
    assert is_closed.wait(10)
    bench.lanes._thread.join(10)
    assert not bench.lanes._thread.is_alive()
    assert len(bench.delivered) == 1
    assert content == [[part for layer in range(6) for part in bench.content(layer)]]
    bench.close()


def test_lanes_without_a_thread_are_given_back(file: LayeredFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    opened = open_parts(SYSTEM, file.parts)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        ReadLanes(opened, lambda *_: None, chunk_bytes=CHUNK)
    close_parts(SYSTEM, opened)


def test_lanes_refuse_what_they_could_not_read(bench: Bench) -> None:
    good = bench.requests[0].array[0]
    fields = (good.offset, good.dst, good.dst_bytes, good.rows, good.cols, good.type)

    def refusal(**change: int) -> str:
        names = ("offset", "address", "n_bytes", "rows", "cols", "type")
        part = Part(**(dict(zip(names, fields, strict=True)) | change))
        with pytest.raises(NativeError) as caught:
            bench.lanes.submit(0, Request([part]))
        return str(caught.value)

    assert "ends beyond the file's" in refusal(offset=bench.file.n_bytes - 10)
    assert "ends beyond the file's" in refusal(offset=2**63)
    assert refusal(file=1) == "read: part 0 lies in file 1 of 1"
    assert "needs" in refusal(address=good.dst + 4)
    assert "needs" in refusal(n_bytes=good.dst_bytes - 1)
    assert "no packed form" in refusal(type=99)
    assert "a chunk holds 65536" in refusal(cols=65536, n_bytes=2**40)
    assert "empty or too large" in refusal(rows=2**60)
    assert bench.delivered == []


def test_lanes_refuse_more_requests_than_fit(file: LayeredFile) -> None:
    gate, reads = threading.Event(), FaultyReads(file.path)

    def read(descriptor: int, address: int, n_bytes: int, offset: int) -> int:
        gate.wait(10)
        return reads.read(descriptor, address, n_bytes, offset)

    bench = Bench(file, LaneCalls(read=read))
    for ticket in range(32):
        bench.lanes.submit(ticket, bench.requests[ticket % 6])
    with pytest.raises(NativeError, match=r"^read: all 32 requests are in flight$"):
        bench.lanes.submit(32, bench.requests[0])
    gate.set()
    bench.wait(32)
    assert sorted(ticket for ticket, _ in bench.delivered) == list(range(32))
    bench.close()


def test_totals_may_be_asked_for_while_lanes_are_closed(file: LayeredFile) -> None:
    for _ in range(20):
        bench = Bench(file)
        for ticket, request in enumerate(bench.requests):
            bench.lanes.submit(ticket, request)
        is_closed, seen = threading.Event(), list[int]()

        def look(bench: Bench = bench, is_closed: threading.Event = is_closed, seen: list[int] = seen) -> None:
            while not is_closed.is_set():
                seen.append(bench.lanes.totals().n_bytes)

        looking = threading.Thread(target=look)
        looking.start()
        bench.wait(1)
        bench.lanes.close()
        is_closed.set()
        looking.join(10)
        assert seen == sorted(seen)
        assert bench.lanes.totals().n_bytes >= seen[-1]
        bench.close()


def test_closed_lanes_say_so(bench: Bench) -> None:
    bench.lanes.close()
    bench.lanes.close()
    assert bench.lanes.totals().n_chunks == 0
    with pytest.raises(ValueError, match="are closed"):
        bench.lanes.submit(0, bench.requests[0])


@pytest.mark.parametrize("chunk", [0, 65535, (16 << 20) + 1])
def test_lanes_refuse_a_chunk_out_of_range(file: LayeredFile, chunk: int) -> None:
    opened = open_parts(SYSTEM, file.parts)
    with pytest.raises(NativeError, match=f"a chunk of {chunk} bytes; allowed are 65536 to 16777216"):
        ReadLanes(opened, lambda *_: None, chunk_bytes=chunk)
    close_parts(SYSTEM, opened)


@pytest.mark.parametrize("n", [0, 257])
def test_request_refuses_a_number_of_parts_out_of_range(n: int) -> None:
    with pytest.raises(ValueError, match=f"^a request has {n} parts: 1 to 256 are allowed$"):
        Request([Part(0, 64, 64, 1, 32, 8)] * n)
