"""emel run, with the fake engine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from cli.process import FAKE, Outcome, environment, run_emel

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_OPTIONS: dict[str, object] = {
    "n_ctx": None,
    "n_threads": None,
    "isa": None,
    "activations": None,
    "overrides": {},
    "kv_type": None,
    "memory": None,
    "lora": [],
    "speculation": "lookup",
    "draft": None,
    "chat_template": None,
}
FIGURES = "[5 prompt tokens at 20.0 tokens/s, 3 tokens at 8.0 tokens/s, first token after 0.250 s]\n"


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "empty.gguf"
    path.touch()
    return str(path)


def run_logged(*words: str, folder: Path, stdin: str = "") -> tuple[Outcome, dict[str, Any]]:
    """The outcome, and the engine's calls by name."""
    log = folder / "log"
    outcome = run_emel("run", *words, folder=folder, program=FAKE, stdin=stdin, extra={"FAKE_LOG": str(log)})
    calls = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return outcome, {entry["call"]: entry for entry in calls}


def test_run_writes_the_answer_to_stdout_and_figures_to_stderr(tmp_path: Path, model: str) -> None:
    outcome, calls = run_logged(model, "Hello there", folder=tmp_path)
    assert outcome == Outcome(0, "Hello there 0 1 2\n", FIGURES)
    assert calls["load"]["path"] == model
    assert calls["load"]["options"] == DEFAULT_OPTIONS
    assert calls["chat"]["messages"] == [{"role": "user", "content": "Hello there"}]
    assert calls["chat"]["stream"] is True
    assert calls["chat"]["sampling"] == {}
    assert calls["end"]["ended"] == "stop"
    assert "close" in calls


def test_run_says_when_the_answer_was_cut(tmp_path: Path, model: str) -> None:
    outcome = run_emel("run", model, "x y", folder=tmp_path, program=FAKE, extra={"FAKE_PIECES": "4"})
    assert outcome.err.rstrip().endswith(", cut at the limit (-n, -c)]")


def test_run_gives_one_token_no_speed(tmp_path: Path, model: str) -> None:
    for n_pieces, figures in ("1", "1 token, first token after 0.250 s"), ("0", "0 tokens"):
        outcome = run_emel("run", model, "x y", folder=tmp_path, program=FAKE, extra={"FAKE_PIECES": n_pieces})
        assert outcome.err == f"[5 prompt tokens at 20.0 tokens/s, {figures}]\n"


def test_run_quiet_leaves_stderr_empty(tmp_path: Path, model: str) -> None:
    assert run_logged("-q", model, "x", folder=tmp_path)[0] == Outcome(0, "x 0 1 2\n", "")


def test_run_passes_every_option_on(tmp_path: Path, model: str) -> None:
    words = "-n 7 -c 512 -t 3 -s 42 --temp 0.5 --top-k 9 --top-p 0.8 --min-p 0.1 --stop END --stop ."
    words += " --isa scalar --speculation off -sys Brief."
    _, calls = run_logged("-m", model, *words.split(), "-p", "Hi", folder=tmp_path)
    given = {"n_ctx": 512, "n_threads": 3, "isa": "scalar", "speculation": None}
    assert calls["load"]["options"] == {**DEFAULT_OPTIONS, **given}
    assert calls["chat"]["messages"] == [
        {"role": "system", "content": "Brief."},
        {"role": "user", "content": "Hi"},
    ]
    assert calls["chat"]["sampling"] == {
        "max_tokens": 7,
        "seed": 42,
        "temperature": 0.5,
        "top_k": 9,
        "top_p": 0.8,
        "min_p": 0.1,
        "stop": ["END", "."],
    }


def test_run_refuses_an_unknown_route_by_its_flag(tmp_path: Path, model: str) -> None:
    outcome, calls = run_logged("-m", model, "--isa", "sse9", "-p", "Hi", folder=tmp_path)
    assert (outcome.code, outcome.out, calls) == (2, "", {})
    assert outcome.err.startswith("emel: error: argument --isa: the CPU route 'sse9' is asked for, but")


def test_run_leaves_minus_one_to_the_engine(tmp_path: Path, model: str) -> None:
    _, calls = run_logged("-m", model, "-n", "-1", "-s", "-1", "-p", "Hi", folder=tmp_path)
    assert calls["chat"]["sampling"] == {}


def test_run_raw_takes_the_prompt_as_it_is(tmp_path: Path, model: str) -> None:
    outcome, calls = run_logged("-m", model, "--raw", "-p", "Once upon", folder=tmp_path)
    assert outcome.out == "Once upon 0 1 2\n"
    assert calls["stream"]["prompt"] == "Once upon"
    assert "chat" not in calls


def test_run_reads_the_prompt_from_a_file_or_a_pipe(tmp_path: Path, model: str) -> None:
    note = tmp_path / "note.txt"
    note.write_bytes(b"two\nlines\n")
    for words, stdin in (["-f", str(note)], ""), (["-f", "-"], "two\nlines\n"), ([], "two\nlines\r\n"):
        _, calls = run_logged(model, *words, folder=tmp_path, stdin=stdin)
        assert calls["chat"]["messages"][0]["content"] == "two\nlines"


def test_run_does_not_wait_for_stdin_when_it_has_a_prompt(tmp_path: Path, model: str) -> None:
    ours, theirs = os.pipe()  # never written, never closed before the end
    try:
        done = subprocess.run(
            [*FAKE, "run", model, "-q", "-p", "x"],
            stdin=ours,
            capture_output=True,
            timeout=30,
            check=True,
            env=environment(tmp_path),
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.stdout == b"x 0 1 2\n"


@pytest.mark.parametrize(
    ("words", "prompt"),
    [(["MODEL", "hello"], "hello"), (["-m", "MODEL", "hello"], "hello"), (["MODEL", "-p", "hello"], "hello")],
)
def test_run_tells_the_model_from_the_prompt(words: list[str], prompt: str, tmp_path: Path, model: str) -> None:
    outcome, calls = run_logged(*[model if word == "MODEL" else word for word in words], folder=tmp_path)
    assert outcome.code == 0
    assert calls["load"]["path"] == model
    assert calls["chat"]["messages"][-1]["content"] == prompt


def test_run_takes_a_sentence_alone_for_the_prompt_of_the_default_model(tmp_path: Path) -> None:
    outcome = run_emel("run", "--offline", "What is this?", folder=tmp_path, program=FAKE)
    assert outcome.code == 1
    assert "smollm2-135m-instruct is not in" in outcome.err
    assert "hint: fetch it once while online: emel pull smollm2-135m-instruct\n" in outcome.err


def test_run_reports_what_the_engine_refuses(tmp_path: Path, model: str) -> None:
    outcome, _ = run_logged(model, "too long", folder=tmp_path)
    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err == "emel: error: the prompt has 9000 tokens, the context 2048\n"


def test_run_interrupted_cancels_and_ends_with_130(tmp_path: Path, model: str) -> None:
    log = tmp_path / "log"
    extra = {"FAKE_PIECES": "1000", "FAKE_DELAY": "0.05", "FAKE_LOG": str(log)}
    with subprocess.Popen(
        [*FAKE, "run", model, "-p", "hello"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=environment(tmp_path, extra),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(7) == b"hello 0"  # streamed, not held until the end
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == b"emel: interrupted\n"
    assert '"ended": "cancelled"' in log.read_text()


@pytest.mark.model
def test_run_answers_with_the_real_engine(smollm2_path: Path, tmp_path: Path) -> None:
    words = ("run", "-m", str(smollm2_path), "--temp", "0", "-n", "40", "What is the capital of France?")
    outcome = run_emel(*words, folder=tmp_path)
    assert outcome.code == 0
    assert "Paris" in outcome.out
    figures = r"\[\d+ prompt tokens at [\d.]+ tokens/s, \d+ tokens at [\d.]+ tokens/s, first token after [\d.]+ s.*\]\n"
    assert re.fullmatch(figures, outcome.err)


@pytest.mark.slow
@pytest.mark.model
def test_run_answers_the_same_with_scalar_code(smollm2_path: Path, tmp_path: Path) -> None:
    words = ("run", "-m", str(smollm2_path), "--temp", "0", "-n", "40", "What is the capital of France?")
    outcome = run_emel(*words, folder=tmp_path)
    assert "Paris" in outcome.out
    assert run_emel(*words, "-t", "1", "--isa", "scalar", folder=tmp_path).out == outcome.out


@pytest.mark.model
def test_run_says_what_does_not_fit_the_context(smollm2_path: Path, tmp_path: Path) -> None:
    outcome = run_emel("run", "-m", str(smollm2_path), "-c", "16", "-p", "word " * 50, folder=tmp_path)
    assert (outcome.code, outcome.out) == (1, "")
    error, hint = outcome.err.splitlines()
    assert re.fullmatch(r"emel: error: the prompt has \d+ tokens, the context holds 16", error)
    assert hint.startswith("hint: shorten it")


def test_run_takes_metadata_in_place_of_the_files(tmp_path: Path, model: str) -> None:
    flags = ["--override-kv", "llama.rope.freq_base=float:5e5", "--override-kv", "general.name=str:a=b"]
    _, calls = run_logged("-m", model, *flags, "-p", "Hi", folder=tmp_path)
    assert calls["load"]["options"]["overrides"] == {"llama.rope.freq_base": 5e5, "general.name": "a=b"}


def test_run_says_what_is_wrong_with_an_override(tmp_path: Path) -> None:
    outcome = run_emel("run", "--override-kv", "a=i32:5", "-p", "Hi", folder=tmp_path)
    assert outcome.code == 2
    assert "override of 'a' has type 'i32': KEY=TYPE:VALUE with the types int, float, bool, str" in outcome.err


CONSTRAINTS: dict[tuple[str, ...], dict[str, Any]] = {
    ("-j", '{"type": "array"}'): {"json_schema": {"type": "array"}},
    ("--json-schema", "{}"): {"json_schema": {}},
    ("-jf", "schema.json"): {"json_schema": {"type": "null"}},
    ("--grammar", 'root ::= "a"'): {"grammar": 'root ::= "a"'},
    ("--grammar-file", "a.gbnf"): {"grammar": 'root ::= "b"\n'},
    ("--regex", "a+"): {"regex": "a+"},
    ("--choice", "yes", "--choice", "no"): {"choice": ["yes", "no"]},
}


@pytest.mark.parametrize("words", CONSTRAINTS, ids=" ".join)
def test_constraints_are_keywords_of_the_api(tmp_path: Path, model: str, words: tuple[str, ...]) -> None:
    (tmp_path / "schema.json").write_text('{"type": "null"}')
    (tmp_path / "a.gbnf").write_text('root ::= "b"\n')
    given = [str(tmp_path / word) if word in {"schema.json", "a.gbnf"} else word for word in words]
    outcome, calls = run_logged(model, "x", *given, folder=tmp_path)
    assert outcome.code == 0, outcome.err
    assert calls["chat"]["sampling"] == CONSTRAINTS[words]


REFUSED_CONSTRAINTS: dict[tuple[str, ...], str] = {
    ("-j", "{"): "argument -j/--json-schema: it is no JSON",
    (
        "-j",
        "person.json",
    ): "argument -j/--json-schema: it is no JSON: Expecting value: line 1 column 1 (char 0); -jf takes a file",
    ("-j", "3"): "argument -j/--json-schema: it must be a JSON schema, an object",
    ("-jf", "/dev/zero"): "argument -jf/--json-schema-file: /dev/zero has more than the 4194304 bytes",
    ("-jf", "/dev/null"): "argument -jf/--json-schema-file: it is no JSON",
    ("--grammar", ""): "argument --grammar: it is empty",
    ("--grammar-file", "nowhere"): "argument --grammar-file: [Errno 2] No such file",
    ("--regex", "a", "--choice", "b"): "argument --choice: not allowed with argument --regex",
}


@pytest.mark.parametrize("words", REFUSED_CONSTRAINTS, ids=" ".join)
def test_constraints_that_are_none_are_refused_by_their_flag(
    tmp_path: Path, model: str, words: tuple[str, ...]
) -> None:
    outcome, calls = run_logged(model, "x", *words, folder=tmp_path)
    assert outcome.code == 2
    assert f"emel: error: {REFUSED_CONSTRAINTS[words]}" in outcome.err
    assert "load" not in calls


@pytest.mark.parametrize("words", [("-f", "/dev/zero"), ("-f", "-")])
def test_a_prompt_without_end_is_an_error(tmp_path: Path, model: str, words: tuple[str, ...]) -> None:
    with open("/dev/zero", "rb") as endless:  # noqa: PTH123
        command = [*FAKE, "run", model, *words]
        done = subprocess.run(
            command, stdin=endless, capture_output=True, text=True, timeout=60, check=False, env=environment(tmp_path)
        )
    assert done.returncode == 1
    assert "has more than the 268435456 bytes that are read of it" in done.stderr


def test_a_chat_template_is_given_by_name_as_jinja_or_in_a_file(tmp_path: Path, model: str) -> None:
    (tmp_path / "a.jinja").write_text("{{ messages[0].content }}!")
    for words, meant in (
        (("--chat-template", "gemma"), "gemma"),
        (("--chat-template", "{{ x }}"), "{{ x }}"),
        (("--chat-template-file", str(tmp_path / "a.jinja")), "{{ messages[0].content }}!"),
    ):
        outcome, calls = run_logged(model, "x", *words, folder=tmp_path)
        assert outcome.code == 0, outcome.err
        assert calls["load"]["options"] == {**DEFAULT_OPTIONS, "chat_template": meant}
    for words in (("--chat-template", "nothing"), ("--chat-template-file", "/dev/zero")):
        outcome, _ = run_logged(model, "x", *words, folder=tmp_path)
        assert outcome.code == 2
        assert f"argument {words[0]}: " in outcome.err


def test_variables_of_the_template_are_a_keyword_of_chat(tmp_path: Path, model: str) -> None:
    words = (model, "hi", "--chat-template-kwargs", '{"enable_thinking": false}')
    _, calls = run_logged(*words, folder=tmp_path)
    assert calls["chat"]["sampling"]["chat_template_kwargs"] == {"enable_thinking": False}
    for text, reason in (("{", "it is no JSON"), ("[1]", "must be a mapping"), ('{"tools": []}', "cannot set 'tools'")):
        outcome, _ = run_logged(model, "hi", "--chat-template-kwargs", text, folder=tmp_path)
        assert outcome.code == 2
        assert "argument --chat-template-kwargs: " in outcome.err
        assert reason in outcome.err
    outcome, _ = run_logged("--raw", *words, folder=tmp_path)
    assert outcome.code == 2
    assert "--raw and --chat-template-kwargs exclude each other" in outcome.err
