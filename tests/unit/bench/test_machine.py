from __future__ import annotations

from typing import TYPE_CHECKING

from emel.bench.machine import counted, cpu_name, describe_machine, excess_load, machine_line, n_cpus

if TYPE_CHECKING:
    import pytest


def test_cpu_name_is_the_first_model_name() -> None:
    assert cpu_name("processor\t: 0\nmodel name\t: A CPU @ 2 GHz: fast\nmodel name\t: other\n") == "A CPU @ 2 GHz: fast"


def test_cpu_name_falls_back_when_there_is_none() -> None:
    assert cpu_name("") != ""
    assert cpu_name("model name : \n") == cpu_name("")


def test_machine_description_has_what_a_header_needs() -> None:
    machine = describe_machine()
    assert set(machine) == {"cpu", "cpus", "system", "python"}
    assert machine["cpus"] == n_cpus() >= 1


def test_a_head_counts_in_words_that_fit() -> None:
    assert (counted(0, "thread"), counted(1, "thread"), counted(2, "thread")) == ("0 threads", "1 thread", "2 threads")
    machine: dict[str, str | int] = {"cpu": "A", "cpus": 1, "system": "B", "python": "3"}
    assert machine_line(machine) == "machine  A, 1 CPU, B, Python 3"


def test_load_counts_from_where_there_is_more_than_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    for load, found in ((0.0, None), (2.0, None), (2.5, 2.5)):
        monkeypatch.setattr("os.getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert excess_load() == found
