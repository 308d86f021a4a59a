from __future__ import annotations

from dataclasses import dataclass

from emel.sm import Machine, Row
from emel.sm.diagram import mermaid, page, text_table
from unit.sm import samples
from unit.sm.samples import Context, DownloadMachine, State, SwitchMachine


def test_mermaid_draws_an_edge_for_each_row_and_the_ends() -> None:
    assert mermaid(DownloadMachine) == (
        "stateDiagram-v2\n"
        "    [*] --> IDLE\n"
        "    IDLE --> READING : Begin [is_possible] / start\n"
        "    READING --> READING : ChunkRead / store\n"
        "    READING --> FAILED : ReadFailed / keep_error\n"
        "    READING --> CHECKING : [has_all]\n"
        "    CHECKING --> DONE : [is_intact]\n"
        "    CHECKING --> FAILED : / complain\n"
        "    FAILED --> IDLE : Reset / forget\n"
        "    DONE --> [*]\n"
    )


def test_text_table_aligns_its_columns() -> None:
    assert text_table(DownloadMachine) == (
        "source    event         guard        effect      destination\n"
        "IDLE      Begin         is_possible  start       READING\n"
        "READING   ChunkRead     -            store       READING\n"
        "READING   ReadFailed    -            keep_error  FAILED\n"
        "READING   (completion)  has_all      -           CHECKING\n"
        "CHECKING  (completion)  is_intact    -           DONE\n"
        "CHECKING  (completion)  -            complain    FAILED\n"
        "FAILED    Reset         -            forget      IDLE\n"
    )


def test_page_tells_all_of_a_machine() -> None:
    text = page(DownloadMachine)
    about, _, diagram = text.partition("```mermaid\n")
    assert about.startswith("# DownloadMachine\n\n`unit.sm.samples.DownloadMachine`\n\nCollects chunks.\n\n")
    assert samples.__doc__ is not None
    assert about.endswith(f"\n\n{samples.__doc__.strip()}\n\n")
    assert diagram.startswith("stateDiagram-v2\n")
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    for line in (
        "| READING | (completion) | has_all | - | CHECKING |",
        "| IDLE | initial |",
        "| READING |  |",
        "| CHECKING | passed through, never rested in |",
        "| DONE | terminal |",
        "| FAILED | failed |",
        "| Begin | n_chunks | Start a download of n_chunks. |",
        "| has_all | Every chunk has come. |",
        "| keep_error | Keeps the reason. |",
    ):
        assert f"\n{line}\n" in text + "\n"


@dataclass(frozen=True, slots=True)
class Bare:
    n: int


def wordless(context: Context, event: Bare) -> None:
    pass


def piped(context: Context, event: Bare) -> None:
    """Writes a|b.

    More of it.
    """


class BareMachine(Machine[State, Context]):
    INITIAL = State.IDLE
    TABLE = (
        Row(State.IDLE, Bare, None, wordless, State.DONE),
        Row(State.DONE, Bare, None, piped, State.DONE),
        Row(State.DONE, None, None, None, State.READING),
    )


def test_page_leaves_out_what_was_not_written() -> None:
    text = page(BareMachine)
    assert "## Guards" not in text
    assert "| Bare | n |  |" in text, "the signature a dataclass gets for want of a docstring is no meaning"
    assert "| wordless |  |" in text
    assert "BareMachine`\n\n```mermaid" in text


def test_page_escapes_pipes_and_shows_first_paragraphs_only() -> None:
    assert "| piped | Writes a\\|b. |" in page(BareMachine)


def test_mermaid_edge_without_event_guard_and_effect_has_no_label() -> None:
    assert "\n    DONE --> READING\n" in mermaid(BareMachine)
    assert "[*]\n" not in mermaid(SwitchMachine).replace("    [*] -->", "")
