"""The example of docs/concepts/memory.md runs, and what the page says of it is so."""

from __future__ import annotations

import re
from pathlib import Path

from unit.model.llama_files import LlamaFile

PAGE = (Path(__file__).parents[3] / "docs/concepts/memory.md").read_text(encoding="utf-8")


def test_the_example_reuses_forks_saves_and_restores(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    scope: dict[str, object] = {"path": LlamaFile().write(tmp_path), "saved": tmp_path / "saved"}
    exec(compile(example, "memory.md", "exec"), scope)
    assert (scope["n_cold"], scope["n_warm"], scope["after"]) == (0, 32, True)
    assert scope["cold"] == scope["warm"]
    assert scope["one"] != scope["other"]


def test_every_method_the_page_names_exists() -> None:
    from emel.memory.kv import KvCache

    names = set(re.findall(r"`(\w+)\(", PAGE)) | set(re.findall(r"`(can_\w+)`", PAGE))
    assert len(names) >= 5
    assert not [name for name in names if not hasattr(KvCache, name)]
