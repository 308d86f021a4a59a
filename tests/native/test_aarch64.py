"""The AArch64 build, under emulation: the same digests as here, and each route only on CPUs that have it.

Emulated is the oldest CPU a route is meant for, which stops at any instruction it does not have.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import pytest

from native.conftest import bring_up_to_date

if TYPE_CHECKING:
    from pathlib import Path

LANES = {"scalar": 3, "neon_dot": 1, "neon_i8mm": 3}  # a run takes 20 s; test_digest.py tries all of both here
CPUS = {"scalar": "cortex-a53", "neon_dot": "neoverse-n1", "neon_i8mm": "max"}
LEAST_OF_A_KIND = 500  # bytes that only look like one are rare


class Instruction(NamedTuple):
    """An encoding of the Arm Architecture Reference Manual (DDI 0487), C7.2: word & mask == value."""

    mask: int
    value: int


SDOT_BY_ELEMENT = Instruction(0xFFC0F400, 0x4F80E000)
USDOT_BY_ELEMENT = Instruction(0xFFC0F400, 0x4F80F000)
USMMLA = Instruction(0xFFE0FC00, 0x4E80AC00)


def emulator() -> str:
    """Path of QEMU's user-mode emulator; without one CI fails, and other machines skip."""
    for name in ("qemu-aarch64-static", "qemu-aarch64"):
        if (found := shutil.which(name)) is not None:
            return found
    missing = "AArch64 is not tested: no qemu-aarch64-static or qemu-aarch64 (Debian: apt-get install qemu-user-static)"
    if os.environ.get("CI") == "true":
        pytest.fail(missing)
    pytest.skip(missing)


@pytest.fixture(scope="session")
def cross_build(lanes_build: Path) -> Path:
    """A folder with the digest program of this machine and, in its folder aarch64, that of AArch64; both up to date."""
    emulator()
    files = ("--native-file", "native/zig.ini", "--cross-file", "native/aarch64.ini")
    bring_up_to_date(lanes_build / "aarch64", "native/emel_digest", "emel_lanes", machine_files=files)
    return lanes_build


def run_emulated(build: Path, cpu: str, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = (emulator(), "-cpu", cpu, str(build / "aarch64/native" / program), *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run_digest(build: Path, cpu: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_emulated(build, cpu, "emel_digest", *arguments)


@pytest.mark.slow
@pytest.mark.timeout(900)  # building alone takes minutes where other tests want the CPUs too
def test_aarch64_digests_are_those_of_this_machine(cross_build: Path) -> None:
    here = subprocess.run(
        [cross_build / "native/emel_digest", "scalar", "1"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    with ThreadPoolExecutor(2) as executor:
        runs = list(executor.map(lambda route: run_digest(cross_build, CPUS[route], route, str(LANES[route])), CPUS))
    for route, done in zip(CPUS, runs, strict=True):
        assert done.returncode == 0, f"{route}: {done.returncode} {done.stderr}"
        differing = [(a, b) for a, b in zip(here, done.stdout.splitlines(), strict=True) if a != b]
        assert not differing, f"{route}: {differing[:3]}"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_aarch64_lanes_give_the_text_of_this_machine(cross_build: Path) -> None:
    here = subprocess.run([cross_build / "native/emel_lanes_scalar"], capture_output=True, text=True, check=True).stdout
    for route, cpu in CPUS.items():
        done = run_emulated(cross_build, cpu, f"emel_lanes_{route}")
        assert (done.returncode, done.stdout) == (0, here), f"{route}: {done.stderr}"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_aarch64_routes_are_offered_where_the_cpu_has_them(cross_build: Path) -> None:
    for n_routes, cpu in enumerate(CPUS.values(), start=1):
        routes = list(CPUS)[:n_routes]
        for refused in ([], ["avx2", "1"], *([route, "1"] for route in list(CPUS)[n_routes:])):
            done = run_digest(cross_build, cpu, *refused)
            assert (done.returncode, done.stdout) == (2, "")
            assert done.stderr == f"usage: emel_digest ROUTE LANES; routes here: {' '.join(routes)}\n"


def occurrences(path: Path, instruction: Instruction) -> int:
    """How many aligned words of the file look like the instruction."""
    data = path.read_bytes()
    words = struct.unpack_from(f"<{len(data) // 4}I", data)
    return sum(word & instruction.mask == instruction.value for word in words)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_aarch64_routes_use_the_products_they_are_named_for(cross_build: Path) -> None:
    expected = {"neon_dot": [SDOT_BY_ELEMENT], "neon_i8mm": [USDOT_BY_ELEMENT, USMMLA]}
    for route, instructions in expected.items():
        unit = cross_build / f"aarch64/native/libisa_{route}.a.p/src_isa_{route}.cc.o"
        for instruction in instructions:
            assert occurrences(unit, instruction) > LEAST_OF_A_KIND, f"{route}: {instruction}"


def test_aarch64_tests_fail_in_ci_and_skip_elsewhere_without_an_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    message = "no qemu-aarch64-static or qemu-aarch64 .Debian: apt-get install qemu-user-static."
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=message):
        emulator()
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match=message):
        emulator()
