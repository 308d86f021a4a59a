"""docs/reference/sampling.md against the table it shows."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from emel.cli.sampling import NUMBERS
from emel.text.sampling import STEPS, SamplingParams

PAGE = (Path(__file__).parents[3] / "docs/reference/sampling.md").read_text(encoding="utf-8")
FLAGS = {name: flags[0] for flags, name, _, _ in NUMBERS} | {
    "dry_sequence_breakers": "--dry-sequence-breaker",
    "samplers": "--samplers",
    "logit_bias": "--logit-bias",
    "ignore_eos": "--ignore-eos",
    "max_tokens": "--predict",
    "seed": "--seed",
}


def row(each: dataclasses.Field[Any]) -> str:
    default = SamplingParams().effective()[each.name]
    shown = "None" if default is None else json.dumps(default) if isinstance(default, list) else str(default)
    if each.name == "samplers":
        shown = "the order below"
    flag = f"`{FLAGS[each.name]}`" if each.name in FLAGS else ""
    kind, meaning = each.metadata["kind"], each.metadata["meaning"]
    return f"| `{each.name}` | {shown} | {kind.allowed} | {meaning} | {flag} |"


def test_page_shows_every_parameter_as_the_table_has_it() -> None:
    rows = [row(each) for each in dataclasses.fields(SamplingParams) if each.name != "dry_breaker_ids"]
    assert [line for line in PAGE.splitlines() if line.startswith("| `") and line.count("|") == 6] == rows


def test_page_shows_the_steps_in_their_order() -> None:
    cells = [[cell.strip(" `") for cell in line.split("|")] for line in PAGE.splitlines() if line.count("|") == 4]
    assert [(cell[1], cell[2]) for cell in cells if cell[1] in STEPS] == list(STEPS.items())
