"""The unit for systemd is one that systemd takes, and both start the command that there is."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from emel.cli.main import build_parser

PACKAGING = Path(__file__).parents[2] / "packaging"
UNIT = PACKAGING / "emel.service"
CONTAINERFILE = PACKAGING / "Containerfile"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    text = UNIT.read_text(encoding="utf-8")
    assert "ExecStart=/opt/emel/bin/emel " in text
    unit.write_text(text.replace("/opt/emel/bin/emel", sys.executable), encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_unit_starts_the_command_with_options_it_has() -> None:
    [line] = re.findall(r"^ExecStart=(.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)
    _, *words = shlex.split(line)
    arguments = build_parser("serve").parse_args(words)
    assert (arguments.host, arguments.offline) == ("127.0.0.1", True)
    assert arguments.api_key_file == "${CREDENTIALS_DIRECTORY}/keys"


def test_the_container_starts_the_command_with_options_it_has() -> None:
    [line] = re.findall(r"^ENTRYPOINT \[(.*)\]$", CONTAINERFILE.read_text(encoding="utf-8"), re.MULTILINE)
    _, *words = [each.strip().strip('"') for each in line.split(",")]
    assert build_parser("serve").parse_args([*words, "/models/model.gguf"]).port == 8080
