"""Pipes that break, descriptors that are closed, bytes that are not text, disks that are full, colours."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from cli.process import FAKE, REAL, environment, run_emel


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "empty.gguf"
    path.touch()
    return str(path)


def shell(line: str, folder: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """A line of sh in which $EMEL is the command with the fake engine and $REAL the command itself."""
    variables = {"EMEL": " ".join(FAKE), "REAL": " ".join(REAL), **extra}
    return subprocess.run(
        ["/bin/sh", "-c", line],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment(folder, variables),
    )


def test_reader_that_leaves_ends_it_quietly(tmp_path: Path, model: str) -> None:
    log = tmp_path / "log"
    line = f"{{ $EMEL run {model} -p hello; echo code $? >&2; }} | head -c 1"
    done = shell(line, tmp_path, FAKE_PIECES="100000", FAKE_LOG=str(log))
    assert done.stdout == "h"
    assert done.stderr == "code 141\n"
    assert '"cancelled"' in log.read_text()  # the request was closed, not left running


def test_help_into_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    done = shell("{ sleep 0.3; $REAL --help; } | true", tmp_path)
    assert done.stderr == ""


def test_closed_stdout_does_not_reach_another_file(tmp_path: Path, model: str) -> None:
    done = shell(f"$EMEL run {model} -p hello >&-", tmp_path)
    assert done.returncode == 0
    assert "hello" not in done.stderr
    assert Path(model).read_bytes() == b""


def test_closed_stdin_is_an_empty_one(tmp_path: Path, model: str) -> None:
    done = shell(f"$EMEL run {model} -q <&-", tmp_path)
    assert done.returncode == 2
    assert "standard input is empty" in done.stderr
    assert shell(f"$EMEL run {model} -q -p hello <&-", tmp_path).stdout == "hello 0 1 2\n"
    assert shell(f"$EMEL chat {model} -q <&-", tmp_path).returncode == 0


def test_closed_stderr_is_survived(tmp_path: Path, model: str) -> None:
    done = shell(f"$EMEL run {model} -p hello 2>&-", tmp_path)
    assert (done.returncode, done.stdout) == (0, "hello 0 1 2\n")
    assert shell("$REAL run flurb 2>&-", tmp_path).returncode == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_full_disk_is_one_line(tmp_path: Path, model: str) -> None:
    done = shell(f"$EMEL run {model} -p hello >/dev/full", tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["emel: error: No space left on device"]


def test_prompt_that_is_no_utf8_is_replaced_with_a_word(tmp_path: Path, model: str) -> None:
    outcome = run_emel("run", model, "-q", "-p", b"na\xefve", folder=tmp_path, program=FAKE)
    assert outcome.code == 0
    assert outcome.out == "na\ufffdve 0 1 2\n"
    assert outcome.err == "emel: an argument is not valid UTF-8; what is not was replaced by U+FFFD\n"


def test_piped_prompt_that_is_no_utf8_is_replaced_with_a_word(tmp_path: Path, model: str) -> None:
    outcome = run_emel("run", model, "-q", folder=tmp_path, program=FAKE, stdin=b"\xff\xfe\n")
    assert outcome.out == "\ufffd\ufffd 0 1 2\n"
    assert outcome.err == "emel: standard input is not valid UTF-8; what is not was replaced by U+FFFD\n"


def test_file_name_that_is_no_utf8_is_found(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xe9t\xe9.gguf"
    Path(os.fsdecode(path)).touch()
    assert run_emel("run", path, "-q", "-p", "x", folder=tmp_path, program=FAKE).out == "x 0 1 2\n"


def test_pull_prints_the_bytes_of_a_name_that_is_no_utf8(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xe9t\xe9.gguf"
    Path(os.fsdecode(path)).touch()
    done = subprocess.run([*REAL, "pull", path], capture_output=True, check=True, env=environment(tmp_path))
    assert done.stdout == path + b"\n"


def test_missing_file_with_a_name_that_is_no_utf8_is_one_line(tmp_path: Path) -> None:
    outcome = run_emel("run", b"\xff.gguf", "x", folder=tmp_path)
    assert outcome.code == 1
    assert "no model file at '\\udcff.gguf'" in outcome.err


def test_narrow_encoding_of_the_terminal_is_survived(tmp_path: Path, model: str) -> None:
    narrow = {"PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    outcome = run_emel("run", model, "-q", "-p", "é", folder=tmp_path, program=FAKE, extra=narrow)
    assert outcome.code == 0
    assert outcome.out == "\\xe9 0 1 2\n"


def on_terminal(words: list[str], folder: Path, **extra: str) -> str:
    """What the command writes to stderr when that is a terminal."""
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            words,
            stderr=theirs,
            stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=False,
            env=environment(folder, {"TERM": "xterm", **extra}),
        )
        return os.read(ours, 1 << 16).decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_colour_only_on_a_terminal_that_wants_it(tmp_path: Path) -> None:
    words = [*REAL, "run", "flurb"]
    assert "\x1b[" in on_terminal(words, tmp_path)
    assert "\x1b[" not in on_terminal(words, tmp_path, NO_COLOR="1")
    assert "\x1b[" not in on_terminal(words, tmp_path, TERM="dumb")
    assert "\x1b[" not in run_emel("run", "flurb", folder=tmp_path).err
