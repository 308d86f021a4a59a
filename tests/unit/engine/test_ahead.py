from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest

from emel.engine.ahead import FOR_CHAT, FOR_TEXT, importing

if TYPE_CHECKING:
    from pathlib import Path


def test_modules_are_imported_when_the_block_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ahead_of_time.py").write_text("import threading\nTHREAD = threading.current_thread().name\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with importing("ahead_of_time"):
        pass
    assert sys.modules.pop("ahead_of_time").THREAD == "emel-import"


def test_module_that_cannot_be_imported_is_no_error_here() -> None:
    with importing("there.is.no.such.module", "neither.this"):
        pass


def test_error_of_the_block_comes_through_and_no_thread_is_left() -> None:
    with pytest.raises(ValueError, match="x"), importing("json"):
        raise ValueError("x")
    assert not any(thread.name == "emel-import" for thread in threading.enumerate())


def test_modules_of_text_and_chats_exist() -> None:
    for name in (*FOR_TEXT, *FOR_CHAT):
        __import__(name)
        assert name in sys.modules
