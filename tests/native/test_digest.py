"""The contract in one picture: every kernel, on every route and any number of lanes, prints the same digests."""

from __future__ import annotations

import itertools
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from emel.kernel.numerics import Activations, numerics_version

RECORDED = Path(__file__).parent / "data"
LANES = (1, 2, 3, 5, 8)
LEAST_CASES = 400
ALIKE = {"attention_1_1_halves 64 0 1"}  # one key at position 0: whatever the pairing, the output is its value


def run_digest(build: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([build / "native/emel_digest", *arguments], capture_output=True, text=True, check=False)


def digest_text(build: Path, route: str, n_lanes: int) -> str:
    done = run_digest(build, route, str(n_lanes))
    assert done.returncode == 0, done.stderr
    return done.stdout


def listed_routes(build: Path) -> list[str]:
    """The routes the program can run here, as its usage names them."""
    _, _, names = run_digest(build).stderr.partition("routes here: ")
    return names.split()


@pytest.mark.slow
def test_digests_are_the_same_text_on_every_route_and_any_lanes(native_build: Path, routes: dict[str, int]) -> None:
    cases = list(itertools.product(listed_routes(native_build), LANES))
    assert {route for route, _ in cases} >= set(routes)
    with ThreadPoolExecutor(2) as executor:
        texts = dict(zip(cases, executor.map(lambda case: digest_text(native_build, *case), cases), strict=True))
    specification = texts["scalar", 1].splitlines()
    assert len(specification) > LEAST_CASES
    for case, text in texts.items():
        differing = [(a, b) for a, b in zip(specification, text.splitlines(), strict=True) if a != b]
        assert not differing, f"{case}: {differing[:3]}"
    assert_digests_say_something(specification)


def assert_digests_say_something(lines: list[str]) -> None:
    """No two cases share a digest, as cases that compute nothing would; argmax prints its index in a digest's stead."""
    digests: dict[str, str] = {}
    indices = set()
    for line in lines:
        name, *numbers, digest = line.split()
        assert re.fullmatch("[0-9a-f]{16}", digest), line
        if name == "argmax":
            indices.add(numbers[1])
        elif line.removesuffix(f" {digest}") not in ALIKE:
            assert digest not in digests, f"{line} has the digest of {digests[digest]}"
            digests[digest] = line
    assert len(indices) > LEAST_CASES // 40
    assert {line.split()[0] for line in lines} >= {"quantize", "gated", "rms_norm", "argmax", "matmul_2", "matmul_8"}


@pytest.mark.parametrize(("activations", "least_cases"), [(Activations.INT16, LEAST_CASES), (Activations.INT8, 200)])
def test_results_are_those_of_the_numerics_version(
    activations: Activations, least_cases: int, native_build: Path, routes: dict[str, int]
) -> None:
    """Recorded digests stay as long as the version does; new cases may come."""
    version = numerics_version(activations)
    recorded = (RECORDED / f"numerics_{version.replace('-', '_')}.txt").read_text(encoding="ascii").splitlines()
    assert len(recorded) > least_cases
    printed = set(digest_text(native_build, list(routes)[-1], 2).splitlines())
    changed = [line for line in recorded if line not in printed]
    assert not changed, (
        f"{len(changed)} results are not those of numerics version {version}, the first {changed[0]!r}: "
        "if that is meant, raise EMEL_NUMERICS_VERSION and record the digests anew (emel_digest scalar 1)"
    )


def test_digest_program_lists_the_routes_of_this_machine(native_build: Path, routes: dict[str, int]) -> None:
    listed = listed_routes(native_build)
    assert set(listed) >= set(routes)
    for arguments in ((), ("scalar",), ("scalar", "0"), ("nothing", "1"), ("scalar", "1", "1")):
        done = run_digest(native_build, *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"usage: emel_digest ROUTE LANES; routes here: {' '.join(listed)}\n"


def test_digest_program_says_why_it_cannot_run(native_build: Path) -> None:
    done = run_digest(native_build, "scalar", "100000")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "emel_digest: pool: 100000 lanes; allowed are 1 to 256\n"
