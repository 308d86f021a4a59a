"""A file to open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from unit.io.sources import CONTENT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(CONTENT)
    return path
