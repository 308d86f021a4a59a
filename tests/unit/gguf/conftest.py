"""A small model to open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from unit.gguf.builder import small

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(small().bytes())
    return path
