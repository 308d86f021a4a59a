"""Ctrl-C from the first moment on: while EMEL is imported, and while a thread loads a model beside that."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.process import REAL, environment

INTERRUPTED = {130, -signal.SIGINT}  # Python ends by the signal itself once an exec() was interrupted; shells say 130
CODE = """\
import emel.cli.entry, emel.cli.main
def run(words):
    import slow
    slow.wait()
emel.cli.main._run_command = run
raise SystemExit(emel.cli.entry.main())
"""
SLOW = """\
import time
print("importing", flush=True)
time.sleep(0.3)
print("imported", flush=True)
def wait():
    time.sleep(60)
"""


def test_an_interrupt_during_an_import_comes_after_it(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path.append({str(tmp_path)!r})\n{CODE}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"importing\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, b"imported\n", b"emel: interrupted\n")


def test_a_process_that_was_started_to_ignore_interrupts_ignores_them(tmp_path: Path) -> None:
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nfrom emel.cli.entry import main; main()\n"
    code += "assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN"
    done = subprocess.run(
        [sys.executable, "-c", code, "--version"], capture_output=True, check=False, env=environment(tmp_path)
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.model
@pytest.mark.parametrize("delay", [0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5])
def test_an_interrupt_at_any_time_ends_it_without_a_traceback(delay: float, smollm2_path: Path, tmp_path: Path) -> None:
    with subprocess.Popen(
        [*REAL, "chat", str(smollm2_path)],
        stdin=subprocess.PIPE,  # nobody writes: it would wait for ever
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
    ) as process:
        while not _catches(process.pid, signal.SIGALRM):  # from there on
            time.sleep(0.001)
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=30)
        finally:
            process.kill()
        assert process.stdout is not None
        assert process.stderr is not None
        out, err = process.stdout.read(), process.stderr.read()
    assert process.returncode in INTERRUPTED
    assert (out, err) in {(b"", b""), (b"", b"emel: interrupted\n")}


def _catches(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return bool(int(status.partition("SigCgt:")[2].split()[0], 16) & 1 << number - 1)
