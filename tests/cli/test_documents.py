"""What README and guides say must be so: their Python runs, their flags exist, their links lead somewhere."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import shlex
from pathlib import Path

import pytest

from emel.cli.main import COMMANDS, build_parser
from emel.engine.loading import load
from emel.engine.options import LoadOptions

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
DOCUMENTS += sorted((ROOT / "docs" / "guides").glob("*.md"))
USER_GUIDES = [ROOT / "README.md", *(ROOT / "docs" / "guides" / f"{name}.md" for name in ("cli", "models"))]


def command_lines(path: Path) -> list[str]:
    """The indented lines that call emel, without what a shell adds."""
    text = path.read_text(encoding="utf-8")
    found = re.findall(r"^    (?:cat \S+ \| )?(emel [a-z]+(?:$| .*))$", text, re.MULTILINE)
    return [re.split(r" [|<#] ?", line)[0].rstrip() for line in found]


@pytest.mark.parametrize("path", USER_GUIDES, ids=lambda path: path.name)
def test_command_lines_of_the_guides_parse(path: Path) -> None:
    lines = [line for line in command_lines(path) if "[" not in line and "  " not in line]
    if path.name != "models.md":
        assert len(lines) >= 2
    for line in lines:
        command, *words = shlex.split(line)[1:]
        build_parser(command).parse_args([command, *words])  # a wrong flag exits


def test_cli_guide_names_every_command_and_flag_of_run() -> None:
    text = (ROOT / "docs" / "guides" / "cli.md").read_text(encoding="utf-8")
    for name, summary in COMMANDS.items():
        assert re.search(rf"^    emel {name} +{re.escape(summary)}$", text, re.MULTILINE), name
    run = text.partition("## emel run")[2].partition("## emel chat")[0]
    flags = set(re.findall(r"`(-[\w-]+)", run))
    options = _flags_of("run")
    assert options - flags == {"-h", "--help"}
    assert flags <= options


def _flags_of(command: str) -> set[str]:
    """The option strings of a command, from its help."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        build_parser(command).parse_args([command, "--help"])
    return set(re.findall(r"(?<![\w-])(--?[a-z][\w-]*)(?=[ ,\n])", out.getvalue().partition("options:")[2]))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


def test_file_map_has_a_line_for_every_folder() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    folders = {path.name for path in (ROOT / "src" / "emel").iterdir() if path.is_dir() and path.name[0] != "_"}
    assert set(re.findall(r"^    src/emel/(\w+) ", text, re.MULTILINE)) == folders


@pytest.mark.model
@pytest.mark.parametrize("name", ["README.md", "docs/guides/python.md", "docs/guides/chat-templates.md"])
def test_python_of_the_guides_runs(
    name: str, smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With few tokens, and the model taken from where the tests have it."""
    models = tmp_path / "cache" / "models"
    models.mkdir(parents=True)
    (models / "SmolLM2-135M-Instruct.Q4_1.gguf").symlink_to(smollm2_path)
    (tmp_path / "model.gguf").symlink_to(smollm2_path)
    monkeypatch.setenv("EMEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("EMEL_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)  # the guides write files
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    variables: dict[str, object] = {}
    for block in blocks:
        code = re.sub(r"max_tokens=\d+", "max_tokens=8", block)
        exec(compile(code, name, "exec"), variables)  # our own documents
    assert capsys.readouterr().out
    if close := getattr(variables.get("model"), "close", None):
        close()


def test_python_guide_explains_every_option_of_load() -> None:
    text = (ROOT / "docs" / "guides" / "python.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `(\w+)` \|", text.partition("## Text")[0], re.MULTILINE))
    ours = set(inspect.signature(load).parameters) - {"model", "unknown"}
    assert named == set(inspect.signature(LoadOptions).parameters) == ours
