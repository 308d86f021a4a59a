"""What streaming is held to: each figure of `emel bench weight_streaming --bars` beside its bar.

Lanes run one after the other, each in a process of its own under the hard limit of its budget (emel.bench.memory_cap),
but for the two that have everything in memory, which take turns and have no limit.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from emel.bench.lane import EMEL, Lane, lane_command
from emel.bench.streaming_lanes import N_CTX, OVERHEAD_BYTES, Conditions, Figures, make_cold, measure, prompt_of
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

SHARES = (0.25, 0.5, 0.75)  # of the file
_MEASURED_SECONDS = 0.5  # of reading each way
_N_WAVE = 8
_N_TURNS = 9
_LIMITS = {
    "bandwidth": 0.85,
    "wave": 5.0,
    "llama.cpp": 3.0,
    "peak": 64.0,
    "experts": 1.3,
    "resident": 0.99,
}


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure and what it is held to; `value` None where it could not be measured."""

    what: str
    value: float | None
    limit: float
    is_at_most: bool = False
    note: str = ""

    @property
    def is_met(self) -> bool | None:
        """Whether the figure is on the right side."""
        if self.value is None:
            return None
        return self.value <= self.limit if self.is_at_most else self.value >= self.limit


def measure_bars(conditions: Conditions, window: Figures, others: Sequence[Figures]) -> list[Bar]:
    """All bars; `window` is EMEL's lane under the suite's own cap, `others` has that of llama.cpp if it ran."""
    shared = [measure_share(conditions, share) for share in SHARES]
    bars = [bandwidth for bandwidth, _ in shared]
    bars.append(wave_bar(conditions))
    bars += [speed_bar(window, each) for each in others if each.lane.startswith("llama.cpp")]
    bars.append(peak_bar([window, *(figures for _, figures in shared)]))
    experts = measure_budget(conditions, "EMEL at a third", conditions.file_bytes // 3)
    if experts.missing_expert_bytes:
        bars.append(experts_bar(experts))
    bars.append(resident_bar(conditions))
    return bars


def measure_budget(conditions: Conditions, name: str, n_bytes: int) -> Figures:
    """EMEL within a budget, under a limit that leaves the interpreter its place."""
    return measure(name, EMEL, replace(conditions, cap=n_bytes + OVERHEAD_BYTES), n_bytes)


def measure_share(conditions: Conditions, share: float) -> tuple[Bar, Figures]:
    """Bytes a second while streaming with a budget of a share of the file, over those of a plain reader before it."""
    from emel.io.speed import measure_model

    plain = measure_model(conditions.parts, seconds=_MEASURED_SECONDS).best
    figures = measure_budget(conditions, f"EMEL at {share:.0%}", int(share * conditions.file_bytes))
    streamed = figures.read_bytes_per_second
    value = streamed / plain if streamed is not None and plain else None
    stalled = figures.stall_share
    note = "" if stalled is None else f"waited for the disk {stalled:.0%} of the decode"
    return Bar(
        f"reading at {share:.0%} of the file, over a plain reader", value, _LIMITS["bandwidth"], note=note
    ), figures


def wave_bar(conditions: Conditions) -> Bar:
    """Tokens a second of eight sequences over those of one, streaming half the file, without guesses.

    A step writes one token of each sequence then. With guesses one sequence has steps of several tokens, which cost as
    little as those of several sequences: the note has that ratio, too.
    """
    plain, guessing = (measure_wave(conditions, guesses=guesses) for guesses in (False, True))
    note = "" if guessing is None else f"{guessing:.2f} where guesses are made (prompt lookup)"
    what = f"{_N_WAVE} sequences over one at 50%, tokens a second, no guesses"
    return Bar(what, plain, _LIMITS["wave"], note=note)


def measure_wave(conditions: Conditions, *, guesses: bool) -> float | None:
    """Tokens a second of eight sequences over those of one; None where the lane failed, or was not cold."""
    from emel.bench.memory_cap import MemoryCap
    from emel.bench.protocol import LaneError
    from emel.bench.wavefront import MODULES
    from emel.bench.wavefront_protocol import WaveLane

    if make_cold(conditions.parts):
        return None
    n_bytes = conditions.file_bytes // 2
    counts = [conditions.n_threads, N_CTX, _N_WAVE, "int16", n_bytes, "lookup" if guesses else "none"]
    command = [sys.executable, "-m", MODULES[EMEL], str(conditions.model), *map(str, counts)]
    with (
        MemoryCap(n_bytes + OVERHEAD_BYTES) as limit,
        WaveLane("EMEL wave", limit.command(command)) as lane,
    ):
        try:
            prompts = [prompt_of(lane.ready.n_vocab, seed) for seed in range(_N_WAVE)]
            lane.generate(prompts[:1], 1)
            one = lane.generate(prompts[:1], conditions.n_decode).decode_rate
            return lane.generate(prompts, conditions.n_decode).decode_rate / one
        except LaneError:
            return None


def speed_bar(window: Figures, other: Figures) -> Bar:
    """Tokens a second over another engine's under the same limit."""
    both = window.tokens_per_second, other.tokens_per_second
    value = both[0] / both[1] if both[0] is not None and both[1] else None
    return Bar(f"tokens a second over {other.lane}, same limit", value, _LIMITS["llama.cpp"])


def peak_bar(found: Sequence[Figures]) -> Bar:
    """MiB by which the most memory a lane had, as the kernel counts it, exceeds its budget."""
    excess = [
        each.peak_bytes - each.budget_bytes
        for each in found
        if each.peak_bytes is not None and each.budget_bytes is not None
    ]
    return Bar("peak beyond the budget, MiB", max(excess) / (1 << 20) if excess else None, _LIMITS["peak"], True)


def experts_bar(figures: Figures) -> Bar:
    """Bytes read for experts over the bytes of those that were chosen and not in memory."""
    read, missing = figures.expert_bytes, figures.missing_expert_bytes
    value = read / missing if read is not None and missing else None
    return Bar("experts read at a third, over those chosen and missing", value, _LIMITS["experts"], True)


def resident_bar(conditions: Conditions) -> Bar:
    """Decoding with a budget that fits everything over decoding without one: the shortest of several turns each."""
    prompt: list[int] = []
    seconds: tuple[list[float], list[float]] = ([], [])
    commands = [
        lane_command(EMEL, conditions.model, conditions.n_threads, N_CTX, options)
        for options in ([], ["int16", str(16 * conditions.file_bytes)])
    ]
    with Lane("EMEL", commands[0]) as plain, Lane("EMEL with a budget", commands[1]) as budgeted:
        for turn in range(_N_TURNS + 1):
            for lane, found in zip((plain, budgeted), seconds, strict=True):
                prompt = prompt or prompt_of(lane.ready.n_vocab)
                taken = lane.measure(prompt, conditions.n_decode).decode_seconds
                if turn:  # the first warms up
                    found.append(taken)
    return Bar("all in memory, with a budget over without one", min(seconds[0]) / min(seconds[1]), _LIMITS["resident"])


def bars_table(bars: Sequence[Bar]) -> str:
    """One line for each."""
    from emel.bench.table import render_table

    verdicts = {True: "met", False: "not met", None: "not measured"}
    rows = [
        [
            bar.what,
            "-" if bar.value is None else f"{bar.value:,.2f}",
            f"{'<=' if bar.is_at_most else '>='} {bar.limit:g}",
            verdicts[bar.is_met],
            bar.note,
        ]
        for bar in bars
    ]
    return render_table(["what streaming is held to", "figure", "bar", "", ""], rows)
