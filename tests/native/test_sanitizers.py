"""The lane pool under ThreadSanitizer, and under Address- and UndefinedBehaviorSanitizer; plans under the first.

What compiles is whichever compiler here brings the sanitizer's runtime: g++, clang++, or for threads the build's own
clang, which makes that runtime from source when it is first asked (a minute). With none of them the tests are skipped,
except in CI, where that is a failure.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "native"
SANITIZERS = {"thread": "thread", "memory": "address,undefined"}
COMPILERS = (("g++",), ("clang++",), ("python-zig", "c++"))
FLAGS = ("-std=c++20", "-O1", "-g", "-ffp-contract=off", "-fno-sanitize-recover=all", "-pthread")
POOL = ("src/pool/pool.cc", "src/core/allocation.cc", "src/core/error.cc")
RACES = {
    "runs_of_8_lanes",
    "runs_of_a_lane_per_cpu",
    "barriers_of_8_lanes",
    "barriers_of_a_lane_per_cpu",
    "callers",
    "uses",
    "lives",
}
N_ROUNDS = 20_000
SECONDS = 3  # for each race; the rounds take less on an idle machine
LEAST_ROUNDS = 5

CLEAN = "int main() { return 0; }"
RACE = """
#include <pthread.h>
int shared = 0;
void* add(void*) { ++shared; return nullptr; }
int main() {
  pthread_t thread;
  if (pthread_create(&thread, nullptr, add, nullptr) != 0) return 0;
  ++shared;
  pthread_join(thread, nullptr);
  return 0;
}
"""
DEAD = "#include <stdlib.h>\nint main() { volatile char* p = (char*)malloc(1); free((void*)p); return *p & 0; }"
FAULTY = {"thread": RACE, "memory": DEAD}

pytestmark = pytest.mark.slow


def program_of(name: str) -> str | None:
    """Where a compiler is: beside this Python, or on the path."""
    tools = Path(sys.executable).parent
    return shutil.which(name, path=f"{tools}{os.pathsep}{os.environ['PATH']}")


def run(*command: str | Path, seconds: float = 600) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=NATIVE, capture_output=True, text=True, check=False, timeout=seconds, errors="replace"
    )


def compiler_for(sanitizer: str, folder: Path) -> tuple[str, ...] | str:
    """The command of a compiler that notices a planted fault and passes a sound program; else why there is none."""
    reasons = []
    for name, *rest in COMPILERS:
        program = program_of(name)
        if program is None:
            reasons.append(f"{name} is missing")
            continue
        command = (program, *rest, *FLAGS, f"-fsanitize={SANITIZERS[sanitizer]}")
        if all(
            outcome(command, source, folder) == wanted
            for source, wanted in ((CLEAN, "passes"), (FAULTY[sanitizer], "is reported"))
        ):
            return command
        reasons.append(f"{name} has no runtime for it")
    return f"no compiler for -fsanitize={SANITIZERS[sanitizer]}: {', '.join(reasons)}"


def outcome(command: tuple[str, ...], text: str, folder: Path) -> str:
    """What becomes of a small program."""
    source, program = folder / "probe.cc", folder / "probe"
    source.write_text(text)
    program.unlink(missing_ok=True)
    if run(*command, source, "-o", program).returncode != 0:
        return "does not compile"
    done = run(program)
    if "Sanitizer" in done.stderr:
        return "is reported" if done.returncode != 0 else "is mentioned"
    return "passes" if done.returncode == 0 else "fails"


def required(sanitizer: str, folder: Path) -> tuple[str, ...]:
    """The command of a compiler; skips, or in CI fails, where there is none."""
    found = compiler_for(sanitizer, folder)
    if isinstance(found, str):
        if os.environ.get("CI") == "true":
            pytest.fail(f"{found}; Debian has one in the package g++")
        pytest.skip(found)
    return found


@pytest.fixture(scope="module", params=SANITIZERS)
def compiler(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    return required(request.param, tmp_path_factory.mktemp("probe"))


@pytest.fixture(scope="module")
def thread_compiler(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    return required("thread", tmp_path_factory.mktemp("probe"))


def built(compiler: tuple[str, ...], build: Path, name: str, *arguments: str) -> Path:
    """A program of native/, sanitized; kept in the build folder as long as its sources stay the same."""
    name = f"{name}-{compiler[-1].partition('=')[2]}"
    key = hashlib.sha256(repr((compiler, arguments)).encode())
    for path in sorted(each for each in NATIVE.rglob("*.*") if each.suffix in (".cc", ".h")):
        key.update(path.read_bytes())
    program = build / "sanitized" / f"{name}-{key.hexdigest()[:16]}"
    if not program.exists():
        program.parent.mkdir(exist_ok=True)
        for old in program.parent.glob(f"{name}-*"):
            old.unlink(missing_ok=True)
        fresh = program.with_name(f"{os.getpid()}-{program.name}")
        done = run(*compiler, "-Iinclude", "-Isrc", *arguments, "-o", fresh)
        assert done.returncode == 0, done.stderr[-4000:]
        fresh.rename(program)
    return program


@pytest.fixture(scope="module")
def pool_races(compiler: tuple[str, ...], native_build: Path) -> Path:
    return built(compiler, native_build, "pool_races", "tests/pool_races.cc", *POOL)


def test_pool_has_no_races_and_touches_nothing_dead(pool_races: Path) -> None:
    done = run(pool_races, str(N_ROUNDS), str(SECONDS))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[:4000]
    n_rounds = {name: int(n) for name, n in (line.split() for line in done.stdout.splitlines())}
    assert set(n_rounds) == RACES
    assert min(n_rounds.values()) >= LEAST_ROUNDS, n_rounds


@pytest.mark.timeout(900)  # compiling alone takes minutes where other tests want the CPUs too
def test_plans_have_no_races(thread_compiler: tuple[str, ...], native_build: Path) -> None:
    """Attention over many shapes, and every other operation, by three lanes of scalar kernels."""
    sources = [
        str(source.relative_to(NATIVE))
        for source in sorted((NATIVE / "src").rglob("*.cc"))
        if source.parent.name != "isa" or source.stem == "scalar"
    ]
    tests = [f"tests/{name}.cc" for name in ("digest", "operations", "scalar_alone")]
    program = built(thread_compiler, native_build, "plans", "-DEMEL_PLANS_ALONE", *tests, *sources)
    done = run(program, "scalar", "3")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[:4000]
    assert "attention_9_3_halves 64 700 17 " in done.stdout


def test_pool_races_says_how_it_is_used(pool_races: Path) -> None:
    for arguments in ((), ("1",), ("0", "1"), ("1", "0"), ("1", "1", "1")):
        done = run(pool_races, *arguments)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", "usage: pool_races ROUNDS SECONDS\n")
