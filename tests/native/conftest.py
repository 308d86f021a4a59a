"""What the tests of the native library share: the build folder they look into, lanes, the routes of this machine."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from emel._native.library import library_path
from emel.kernel.features import available_routes
from emel.kernel.pool import LanePool

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parents[2]


def run_build_tool(*command: str | Path) -> None:
    """Runs meson or ninja of this environment; its output is shown when it fails."""
    tools = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    program = shutil.which(str(command[0]), path=environment["PATH"])
    assert program is not None, f"{command[0]} is missing: `make .venv/.installed` installs the build tools"
    done = subprocess.run(
        [program, *command[1:]], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"


def bring_up_to_date(
    folder: Path, *targets: str, machine_files: Sequence[str] = ("--native-file", "native/zig.ini")
) -> None:
    """Builds targets in a folder, which is set up where it is none yet; one process at a time."""
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "build.ninja").exists():
            run_build_tool("meson", "setup", *machine_files, folder)
        run_build_tool("ninja", "-C", folder, *targets)


@pytest.fixture(scope="session")
def native_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder of the sources, with the library, its objects and the digest program up to date.

    The folder the library under test lies in, else the one that installing leaves in the project, else a private one.
    """
    shared = tmp_path_factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else None
    private = (shared or tmp_path_factory.getbasetemp()) / "native-build"
    candidates = (library_path().resolve().parents[1], ROOT / "build")
    folder = next((each for each in candidates if (each / "build.ninja").exists()), private)
    bring_up_to_date(folder, "native/emel_digest", "native/libemel.so")
    return folder


@pytest.fixture(scope="session")
def lanes_build(native_build: Path) -> Path:
    """The same with the programs of native/tests/lanes.cc, which take longer to build than what they test."""
    bring_up_to_date(native_build, "emel_lanes")
    return native_build


@pytest.fixture(scope="session")
def routes() -> dict[str, int]:
    """Name -> id of the routes this machine runs, the specification first."""
    found = available_routes()
    assert next(iter(found)) == "scalar"
    return found


@pytest.fixture(scope="module")
def lanes() -> Iterator[dict[int, LanePool]]:
    """Pools of 1 and of 3 lanes, by their number."""
    with LanePool(1) as one, LanePool(3) as three:
        yield {1: one, 3: three}
