"""The example of docs/concepts/plan.md runs, and what the page says of a layer is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emel._native.abi import OpKind
from emel.graph.assembler import assemble
from emel.graph.capacity import Capacity
from unit.graph.tiny import Tiny
from unit.model.llama_files import LlamaFile

PAGE = (Path(__file__).parents[3] / "docs/concepts/plan.md").read_text(encoding="utf-8")


def test_the_example_generates_tokens(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    scope: dict[str, object] = {"path": LlamaFile().write(tmp_path)}
    exec(compile(example, "plan.md", "exec"), scope)
    answer = scope["answer"]
    assert isinstance(answer, list)
    assert len(answer) == 5
    assert all(0 <= token < 40 for token in answer)


def test_the_records_of_a_layer_are_those_shown() -> None:
    (shown,) = re.findall(r"ten records:\n\n((?: {4}.*\n)+)", PAGE)
    names = re.findall(r"[A-Z_]{4,}", shown)
    assembly = assemble(Tiny(n_layers=3).build, Capacity(4, 1, 1, 2))
    assert names == [OpKind(record.kind).name for record in assembly.records if record.segment == 1]


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)]+)\)", PAGE))
def test_links_lead_somewhere(link: str) -> None:
    assert (Path(__file__).parents[3] / "docs/concepts" / link).resolve().exists()
