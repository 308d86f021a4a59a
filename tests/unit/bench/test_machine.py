from __future__ import annotations

from emel.bench.machine import cpu_name, describe_machine, n_cpus


def test_cpu_name_is_the_first_model_name() -> None:
    assert cpu_name("processor\t: 0\nmodel name\t: A CPU @ 2 GHz: fast\nmodel name\t: other\n") == "A CPU @ 2 GHz: fast"


def test_cpu_name_falls_back_when_there_is_none() -> None:
    assert cpu_name("") != ""
    assert cpu_name("model name : \n") == cpu_name("")


def test_machine_description_has_what_a_header_needs() -> None:
    machine = describe_machine()
    assert set(machine) == {"cpu", "cpus", "system", "python"}
    assert machine["cpus"] == n_cpus() >= 1
