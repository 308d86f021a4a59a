"""Words of other engines: each gets a hint, and none is one that EMEL has."""

from __future__ import annotations

import pytest

from emel.cli import other_engines
from emel.cli.main import COMMANDS, build_parser, main
from emel.cli.other_engines import command_hint, flag_hint


def test_no_flag_and_no_command_of_the_tables_is_one_of_emel_run(capsys: pytest.CaptureFixture[str]) -> None:
    parser = build_parser("run")
    for flags in other_engines._FLAGS:
        for flag in flags.split():
            with pytest.raises(SystemExit):
                parser.parse_args(["run", "x", flag])
            assert f"emel run has no {flag}" in capsys.readouterr().err
    for words in other_engines._COMMANDS:
        assert not set(words.split()) & COMMANDS.keys()


def flags_of(command: str) -> set[str]:
    parser = build_parser(command).parse_args([command]).parser
    return set(parser._option_string_actions)


def test_fields_of_requests_are_flags_of_emel_run_and_of_no_server() -> None:
    known, taken = (flags_of(command) for command in ("run", "serve"))
    for flags in other_engines._FIELDS:
        assert set(flags.split()) <= known - taken


def test_no_word_stands_in_the_tables_twice() -> None:
    for table in (other_engines._FLAGS, other_engines._FIELDS, other_engines._COMMANDS):
        words = " ".join(table).split()
        assert len(words) == len(set(words))


def test_flag_hint_reads_a_value_behind_an_equals_sign_and_nothing_behind_two_dashes() -> None:
    found = flag_hint(["x", "--n-gpu-layers=99"], ())
    assert found is not None
    assert found[0] == "--n-gpu-layers"
    assert flag_hint(["--", "--n-gpu-layers"], ()) is None
    assert flag_hint(["--n-gpu-layers"], {"--n-gpu-layers"}) is None
    assert command_hint("flurb") is None


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["run", "x y", "-ngl", "99"], "emel run has no -ngl", "EMEL computes on CPUs alone"),
        (["run", "x y", "-ctk", "q8_0"], "emel run has no -ctk", "--kv-type"),
        (["run", "-p", "x", "-fa"], "emel run has no -fa", "it is always so"),
        (["run", "x y", "-no-cnv"], "emel run has no -no-cnv", "--raw"),
        (["run", "x y", "--flurb", "--no-mmap"], "emel run has no --no-mmap", "--memory"),
        (["serve", "--max-model-len", "4096"], "emel serve has no --max-model-len", "-c N"),
        (["serve", "--temp", "0"], "emel serve has no --temp", "it belongs in the request, as temperature"),
        (["serve", "-n=2"], "emel serve has no -n", "it belongs in the request, as max_tokens"),
        (["serve", "--reasoning-format", "none"], "emel serve has no --reasoning-format", "reasoning_format"),
        (["serve", "--no-webui"], "emel serve has no --no-webui", "leave it out"),
        (["list"], "there is no command 'list'", "emel pull --list"),
        (["show", "x"], "there is no command 'show'", "emel inspect MODEL"),
    ],
)
def test_words_of_other_engines_are_refused_with_what_to_type(
    words: list[str], error: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"emel: error: {error}"
    assert lines[1].startswith("hint: ")
    assert hint in lines[1]
    assert len(lines) == 2
