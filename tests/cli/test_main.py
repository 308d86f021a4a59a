"""The command line as a whole: help, version, usage errors."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from cli.process import environment, run_emel
from emel.cli.entry import EXIT_INTERRUPTED
from emel.cli.main import COMMANDS, main

if TYPE_CHECKING:
    from pathlib import Path


def test_help_names_every_command(tmp_path: Path) -> None:
    outcome = run_emel("--help", folder=tmp_path)
    assert outcome.code == 0
    assert outcome.err == ""
    for name, summary in COMMANDS.items():
        assert f"    {name} " in outcome.out
        assert summary in " ".join(outcome.out.split())


def test_help_is_quick(tmp_path: Path) -> None:
    best = 60.0
    for _ in range(5):
        started = time.perf_counter()
        assert run_emel("--help", folder=tmp_path).code == 0
        best = min(best, time.perf_counter() - started)
    assert best < 0.5  # 0.2 s is the promise; this machine may be busy with other tests


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    code = "import sys; from emel.cli.main import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment(tmp_path)
    )
    loaded = set(done.stderr.split())
    assert "argparse" in loaded
    heavy = {"numpy", "jinja2", "regex", "tqdm", "huggingface_hub", "emel._native", "emel.engine.models", "subprocess"}
    assert not loaded & heavy


def test_the_collector_looks_rarely_while_a_command_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    before, during = gc.get_threshold(), []

    def fails(_words: list[str]) -> int:
        during.append(gc.get_threshold())
        raise KeyboardInterrupt

    monkeypatch.setattr("emel.cli.main._run_command", fails)
    assert main(["run"]) == EXIT_INTERRUPTED
    assert during[0][0] > 10 * before[0]
    assert gc.get_threshold() == before


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "bench"])
def test_help_of_a_command_shows_its_usage(command: str, tmp_path: Path) -> None:
    outcome = run_emel(command, "--help", folder=tmp_path)
    assert outcome.code == 0
    assert outcome.out.startswith(f"usage: emel {command} ")
    assert outcome.err == ""


def test_version_is_one_line(tmp_path: Path) -> None:
    outcome = run_emel("--version", folder=tmp_path)
    assert outcome.code == 0
    assert outcome.out.startswith("emel ")
    assert outcome.out.count("\n") == 1


def test_no_command_shows_the_help_on_stderr(tmp_path: Path) -> None:
    outcome = run_emel(folder=tmp_path)
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("usage: emel ")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["flurb"], "'flurb'"),
        (["--flurb"], "COMMAND"),
        (["run", "--flurb", "x"], "--flurb"),
        (["run", "--tmep", "0", "x"], "unrecognized arguments: --tmep (did you mean --temp?)"),
        (["bench", "prefix", "--prefx", "9"], "--prefx 9 (did you mean --prefix?)"),
        (["bench", "wavefrnt"], "(did you mean wavefront?)"),
        (["run", "x", "--kv-type", "q8"], "(did you mean q8_0?)"),
        (["rnu", "x"], "there is no command 'rnu' (did you mean run?)"),
        (["run", "-m"], "-m/--model"),
        (["run", "-n", "many", "x"], "argument -n/--predict/--n-predict/--max-tokens: 'many' is not a whole number"),
        (["run", "-n", "-2", "x"], "argument -n/--predict/--n-predict/--max-tokens: -2 is below -1"),
        (["run", "-c", "-1", "x"], "argument -c/--ctx-size: -1 is below 0"),
        (["run", "-t", "0", "x"], "argument -t/--threads: 0 is below 1"),
        (["run", "--temp", "-0.5", "x"], "argument --temp/--temperature: -0.5 is outside what is allowed, 0 to 100"),
        (["run", "--temp", "nan", "x"], "argument --temp/--temperature: nan is outside"),
        (["run", "--top-p", "1.5", "x"], "argument --top-p: 1.5 is outside what is allowed, 0 to 1"),
        (["run", "--mirostat", "3", "x"], "argument --mirostat: 3 is above 2"),
        (
            ["run", "--samplers", "top_k;nope", "x"],
            "argument --samplers: 'top_k;nope': allowed are a list of penalties",
        ),
        (["run", "--sampler-seq", "kk", "x"], "argument --sampler-seq/--sampling-seq: 'kk': allowed"),
        (["run", "--samplers", "k", "--sampler-seq", "k", "x"], "not allowed with argument --samplers"),
        (["run", "-l", "15", "x"], "argument -l/--logit-bias: '15' is no token id followed by + or -"),
        (["run", "-l", "15+inf", "x"], "argument -l/--logit-bias: +inf is outside what is allowed, -1e+06 to 1e+06"),
        (["run", "--dry-sequence-breaker", "", "x"], "argument --dry-sequence-breaker: '': allowed"),
        (["run", "-s", "18446744073709551616", "x"], "is above 18446744073709551615, the highest value allowed"),
        (["chat", "--repeat-last-n", "-2"], "argument --repeat-last-n: -2 is below -1"),
        (["run", "--min-p", "x", "x"], "argument --min-p: 'x' is not a number"),
        (["run", "--stop", "", "x"], "argument -r/--stop/--reverse-prompt: the text is empty"),
        (["run", "-p", "x", "-f", "y"], "argument -f/--file: not allowed with argument -p/--prompt"),
        (["run", "--raw", "-sys", "y", "x"], "argument -sys/--system/--system-prompt: not allowed with argument --raw"),
        (["run", "-m", "a", "-hf", "b/c", "x"], "argument -hf/--hf-repo: not allowed with argument -m/--model"),
        (["run", "-m", "a", "b", "c"], "'c': the model is given by a flag"),
        (["run", "-p", "a", "b", "c"], "'c': the prompt is given by a flag"),
        (["run", "-f", "a.txt", "b c"], "'b c': the prompt is given by a flag"),
        (["run", "smollm2", "b", "c"], "'c': one model and one prompt are wanted (quote a prompt of several words)"),
        (["run", "-m", "a", "-p", "b", "c"], "'c': the model is given by a flag and the prompt is given by a flag"),
        (["run", "-p", ""], "no prompt: the one given is empty"),
        (["run", "-f", "/dev/null"], "no prompt: the file '/dev/null' is empty"),
        (["chat", "-m", "a", "b"], "'b': the model is given by a flag"),
        (["chat", "to be"], "'to be' is no model: emel run answers one prompt, emel chat reads them"),
        (["run", "to be", "or not"], "'to be': one model and one prompt are wanted (quote a prompt of several words)"),
        (["inspect", "-m", "a", "b"], "'b': the model is given by a flag"),
        (["run"], "no prompt: none is given by argument, -p or -f, and standard input is empty"),
        (["machines", "--table", "--diagram"], "argument --diagram: not allowed with argument --table"),
    ],
)
def test_usage_error_is_one_line_that_names_the_flag(words: list[str], named: str, tmp_path: Path) -> None:
    outcome = run_emel(*words, folder=tmp_path)
    assert outcome.code == 2
    assert outcome.out == ""
    error, hint = outcome.err.splitlines()
    assert error.startswith("emel: error: ")
    assert named in error
    assert hint.startswith("hint: see emel")
    assert hint.endswith("--help")


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (
            ["run", "flurb"],
            "no model is called 'flurb', and there is no such file",
            "if it is the prompt: -p flurb; known",
        ),
        (["run", "smolm2", "x"], "(did you mean smollm2?)", "hf:owner/repo[:quant]"),
        (["run", "-m", "gone.gguf", "x"], "no model file at 'gone.gguf'", "known names"),
        (["chat", "no/such/file"], "no model file at 'no/such/file'", "known names"),
        (["run", "-m", "/", "x"], "'/' is a folder; give the .gguf file itself", "known names"),
        (["run", "-f", "gone.txt"], "'gone.txt': No such file or directory", None),
        (["run", "-m", "", "x"], "no model is called ''", "known names"),
        (["run", "--offline", "-md", "gemma3-270m", "x y"], "fetching is switched off", "emel pull gemma3-270m"),
        (["inspect", "hf:nobody"], "'hf:nobody' does not name a repository", "hf:owner/repo"),
    ],
)
def test_failure_is_one_line_with_a_hint(words: list[str], error: str, hint: str | None, tmp_path: Path) -> None:
    outcome = run_emel(*words, folder=tmp_path)
    assert outcome.code == 1
    assert outcome.out == ""
    lines = outcome.err.splitlines()
    assert lines[0].startswith("emel: error: ")
    assert error in lines[0]
    assert len(lines) == (1 if hint is None else 2)
    if hint is not None:
        assert lines[1].startswith("hint: ")
        assert hint in lines[1]


def test_failure_sends_no_codes_of_a_name_to_the_terminal(tmp_path: Path) -> None:
    outcome = run_emel("run", "--\x1b[2J", folder=tmp_path)
    assert outcome.code == 2
    assert "\x1b" not in outcome.err
    outcome = run_emel("machines", "\x1b[2J\nx", folder=tmp_path)
    assert outcome.code == 1
    assert "\x1b" not in outcome.err
    assert len(outcome.err.splitlines()) == 2


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    outcome = run_emel("run", "flurb", folder=tmp_path, extra={"EMEL_DEBUG": "1"})
    assert outcome.code == 1
    assert "Traceback" in outcome.err
    assert "ModelNotFoundError" in outcome.err
