"""What streaming is held to: figures on the right and on the wrong side, and what could not be measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from emel.bench import streaming_bars
from emel.bench.streaming_bars import Bar, bars_table, experts_bar, measure_bars, peak_bar, speed_bar
from emel.bench.streaming_lanes import OVERHEAD_BYTES, Conditions, Figures, prompt_of
from emel.io.parts import FilePart
from emel.io.speed import ReadSpeeds

CONDITIONS = Conditions(Path("model"), (FilePart("model", 600), FilePart("more", 400)), 2, 5000, 4)
WINDOW = Figures(
    "EMEL window",
    tokens_per_second=6.0,
    read_bytes_per_second=90.0,
    stall_share=0.4,
    peak_bytes=3 << 20,
    budget_bytes=0,
)


@pytest.mark.parametrize(
    ("value", "is_at_most", "met"), [(2, False, True), (1, False, False), (1, True, True), (2, True, False)]
)
def test_a_bar_is_met_on_the_right_side(value: float, is_at_most: bool, met: bool) -> None:
    assert Bar("x", value, 1.5, is_at_most).is_met is met
    assert Bar("x", 1.5, 1.5, is_at_most).is_met is True
    assert Bar("x", None, 1.5, is_at_most).is_met is None


def test_figures_of_lanes_become_bars() -> None:
    assert speed_bar(WINDOW, Figures("llama.cpp mmap", tokens_per_second=1.5)) == Bar(
        "tokens a second over llama.cpp mmap, same limit", 4.0, 3.0
    )
    assert speed_bar(WINDOW, Figures("llama.cpp mmap", failure="killed")).value is None
    assert peak_bar([WINDOW, replace(WINDOW, budget_bytes=2 << 20), Figures("failed")]).value == 3
    assert peak_bar([Figures("failed")]).value is None
    assert experts_bar(Figures("x", expert_bytes=12, missing_expert_bytes=10)).value == 1.2
    assert experts_bar(Figures("x")).is_met is None


@pytest.mark.parametrize("missing", [0, 50])
def test_budgets_are_shares_of_all_files_under_limits_of_their_own(
    missing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[int, int]] = []

    def measure(_name: str, _engine: str, conditions: Conditions, memory: int) -> Figures:
        ran.append((memory, conditions.cap - memory))
        return replace(WINDOW, budget_bytes=memory, expert_bytes=60, missing_expert_bytes=missing)

    monkeypatch.setattr(streaming_bars, "measure", measure)
    monkeypatch.setattr(streaming_bars, "wave_bar", lambda _: Bar("wave", 5.5, 5))
    monkeypatch.setattr(streaming_bars, "resident_bar", lambda _: Bar("resident", 1.0, 0.99))
    monkeypatch.setattr("emel.io.speed.measure_model", lambda *_, **__: ReadSpeeds(90.0, 100.0))
    bars = measure_bars(
        CONDITIONS, WINDOW, [Figures("EMEL resident"), Figures("llama.cpp mmap", tokens_per_second=3.0)]
    )
    assert ran == [(n_bytes, OVERHEAD_BYTES) for n_bytes in (250, 500, 750, 333)]
    assert [bar.value for bar in bars[:3]] == [0.9] * 3
    experts = ["experts read at a third, over those chosen and missing"] if missing else []
    assert [bar.what for bar in bars[3:]] == [
        "wave",
        "tokens a second over llama.cpp mmap, same limit",
        "peak beyond the budget, MiB",
        *experts,
        "resident",
    ]
    lines = bars_table(bars).splitlines()
    assert len(lines) == 2 + len(bars)
    assert lines[6].endswith("2.00     >= 3  not met")
    assert lines[4].endswith("0.90  >= 0.85      met  waited for the disk 40% of the decode")


def test_a_wave_is_held_to_its_ratio_without_guesses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming_bars, "measure_wave", lambda _, *, guesses: 3.0 if guesses else 6.0)
    bar = streaming_bars.wave_bar(CONDITIONS)
    assert (bar.value, bar.is_met, bar.note) == (6.0, True, "3.00 where guesses are made (prompt lookup)")


def test_prompts_differ_by_seed_and_stay_in_the_vocabulary() -> None:
    prompts = [prompt_of(50, seed) for seed in range(8)]
    assert len({tuple(prompt) for prompt in prompts}) == 8
    assert all(0 <= token < 50 for prompt in prompts for token in prompt)
