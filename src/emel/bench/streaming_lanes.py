"""The lanes of the weight_streaming suite: an engine in a process of its own under a hard limit, cold.

What is read from disk is what the kernel counts for the process.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emel.io.parts import FilePart

N_PROMPT = 16
N_CTX = 512
OVERHEAD_BYTES = 40 << 20
"""Of the interpreter (24 MiB, with a vocabulary of 128,000 tokens), libraries (11) and what the kernel keeps (2)."""

_N_SAMPLES = 64  # of a file, far apart
_MOST_CACHED = 0.1


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one lane: seconds, bytes read from disk, peak memory of its group; None where it could not run."""

    lane: str
    load_seconds: float | None = None
    first_token_seconds: float | None = None
    tokens_per_second: float | None = None
    read_bytes_per_token: float | None = None
    read_bytes_per_second: float | None = None
    stall_share: float | None = None
    """Of the decode, the time that waited for weights; of EMEL's window."""
    peak_bytes: int | None = None
    budget_bytes: int | None = None
    expert_bytes: float | None = None
    """Read of experts, and the bytes of those that were chosen and not in memory."""
    missing_expert_bytes: float | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What is the same for every lane."""

    model: Path
    parts: tuple[FilePart, ...]
    n_threads: int
    cap: int
    n_decode: int

    @property
    def file_bytes(self) -> int:
        """Of all files of the model."""
        return sum(part.n_bytes for part in self.parts)


def prompt_of(n_vocab: int, seed: int = 0) -> list[int]:
    """Token ids without a meaning, others for each seed."""
    return [(7 * at + 31 * seed + 3) % n_vocab for at in range(N_PROMPT)]


def measure(name: str, engine: str, conditions: Conditions, memory: int | None) -> Figures:
    """One lane, cold: a prompt and its first token, then tokens; what failed is said, not raised."""
    from emel.bench.lane import LLAMA_CPP, Lane, lane_command
    from emel.bench.memory_cap import MemoryCap
    from emel.bench.protocol import LaneError

    n_decode = conditions.n_decode
    if failure := make_cold(conditions.parts):
        return Figures(name, failure=failure)
    command = lane_command(engine, conditions.model, conditions.n_threads, N_CTX)
    if engine == LLAMA_CPP:
        command.append("mapped")
    elif memory is not None:
        command += ["int16", str(memory)]
    with MemoryCap(conditions.cap) as limit:
        began = time.perf_counter()
        with Lane(name, limit.command(command)) as lane:
            try:
                n_vocab = lane.ready.n_vocab
                loaded = time.perf_counter()
                prompt = prompt_of(n_vocab)
                first = lane.measure(prompt, 0)
                before = disk_bytes(lane.pid)
                timings = lane.measure(prompt, n_decode)
                read, peak = disk_bytes(lane.pid) - before, limit.peak_bytes()
                if failure := kept_elsewhere(conditions):
                    return Figures(name, failure=failure, peak_bytes=peak)
            except LaneError as error:
                return Figures(name, failure=str(error), peak_bytes=limit.peak_bytes())
        seconds = timings.prefill_seconds + timings.decode_seconds
        return Figures(
            lane=name,
            load_seconds=loaded - began,
            first_token_seconds=first.prefill_seconds,
            tokens_per_second=n_decode / timings.decode_seconds,
            read_bytes_per_token=read / (n_decode + 1),
            read_bytes_per_second=read / seconds,
            stall_share=timings.stalled_seconds / timings.decode_seconds if memory is not None else None,
            peak_bytes=peak,
            budget_bytes=memory,
            expert_bytes=timings.expert_bytes,
            missing_expert_bytes=timings.missing_expert_bytes,
        )


def make_cold(parts: Sequence[FilePart]) -> str:
    """Has the system forget all files; what keeps it from that, in words, empty when nothing does."""
    for part in parts:
        drop_from_cache(part.path)
        if cached_share(part.path) > _MOST_CACHED:
            return f"{part.path} stays in the page cache, outside of the limit: something maps or reads it"
        drop_from_cache(part.path)  # what the look itself had read ahead
    return ""


def kept_elsewhere(conditions: Conditions) -> str:
    """What makes more of the files stay in the page cache than the limit allows, in words, empty when nothing does.

    Another process that reads them meanwhile has their pages counted as its own, and the lane reads from memory.
    """
    cached = sum(cached_share(part.path) * part.n_bytes for part in conditions.parts)
    if cached <= conditions.cap + _MOST_CACHED * conditions.file_bytes:
        return ""
    return f"{cached / 1e6:,.0f} MB of the file are in the page cache: something else read it meanwhile"


def disk_bytes(pid: int) -> int:
    """Bytes a process has had fetched from storage (proc(5), /proc/pid/io); 0 where the system does not say."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("read_bytes:")), 0)


def cached_share(path: str) -> float:
    """The share of a file that is in the page cache, by samples; 0 where the system does not say (preadv2(2))."""
    flag = getattr(os, "RWF_NOWAIT", None)
    if flag is None:
        return 0.0
    descriptor, n_found = os.open(path, os.O_RDONLY), 0
    try:
        n_bytes = os.fstat(descriptor).st_size
        for sample in range(_N_SAMPLES):
            try:
                n_found += os.preadv(descriptor, [bytearray(1)], sample * n_bytes // _N_SAMPLES, flag)
            except BlockingIOError:
                continue
            except OSError:
                return 0.0
    finally:
        os.close(descriptor)
    return n_found / _N_SAMPLES


def drop_from_cache(path: str) -> None:
    """Has the system forget a file's pages, as far as nobody maps them; what was just written is on disk then."""
    if hasattr(os, "posix_fadvise"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
