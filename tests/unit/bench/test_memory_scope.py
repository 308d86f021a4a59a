"""Scopes of systemd, played by a script: the limit is passed, read back and refused where it does not hold."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from emel.bench.memory_cap import CapError, MemoryCap
from emel.bench.memory_scope import MemoryScope, ScopeError

if TYPE_CHECKING:
    from pathlib import Path

GROUP = "/user.slice/run-1.scope"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which systemd runs; what the scope's group is limited to is what the script was told."""
    group = tmp_path / f"sys/fs/cgroup{GROUP}"
    for folder in ("run/systemd/system", "proc/self", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    group.mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"0::{GROUP}\n", encoding="ascii")
    script = tmp_path / "bin/systemd-run"
    script.write_text(
        "#!/bin/sh\n"
        f'echo "$@" > {tmp_path}/told\n'
        'while [ "$1" != -- ]; do\n'
        f'  case "$1" in MemoryMax=*) printf %s "${{1#MemoryMax=}}" > {group}/memory.max;; esac\n'
        "  shift\n"
        "done\n"
        "shift\n"
        'exec "$@"\n',
        encoding="ascii",
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return tmp_path


def test_a_scope_limits_its_child_and_tells_the_peak(root: Path) -> None:
    scope = MemoryScope(12345678, root)
    assert scope.peak_bytes() is None  # no child yet
    found = subprocess.run(scope.command(["echo", "a b", "c"]), capture_output=True, text=True, check=True)
    assert found.stdout == "a b c\n"
    told = (root / "told").read_text(encoding="ascii").split()
    assert told[told.index("-p") + 1] == "MemoryMax=12345678"
    assert {"--scope", "MemorySwapMax=0"} <= set(told)
    assert ("--user" in told) == (os.geteuid() != 0)
    (root / f"sys/fs/cgroup{GROUP}/memory.peak").write_text("777\n", encoding="ascii")
    assert scope.peak_bytes() == 777
    scope.close()
    assert scope.peak_bytes() is None


def test_a_cap_asks_systemd_where_no_group_may_be_made(root: Path) -> None:
    group = root / f"sys/fs/cgroup{GROUP}"
    (group / f"emel-bench-{os.getpid()}").write_text("", encoding="ascii")  # in the way of a group
    for parent in (group.parent, group.parent.parent):
        (parent / f"emel-bench-{os.getpid()}").write_text("", encoding="ascii")
    with MemoryCap(1 << 20, root) as cap:
        assert "systemd-run" in cap.command(["true"])[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("exit 1\n", "it ended with code 1"),
        ("echo no bus >&2; exit 1\n", "no bus"),
        ("echo max\n", "the limit of its scope is max"),
        ("true\n", "the limit of its scope is unknown"),
    ],
)
def test_a_limit_that_does_not_hold_is_an_error(root: Path, change: str, message: str) -> None:
    (root / "bin/systemd-run").write_text(f"#!/bin/sh\n{change}", encoding="ascii")
    with pytest.raises(ScopeError, match=f"systemd-run: {message}$"):
        MemoryScope(1 << 20, root)


@pytest.mark.parametrize("missing", ["run/systemd/system", "bin/systemd-run"])
def test_without_systemd_there_is_no_scope(root: Path, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(root / "bin"))
    path = root / missing
    path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises(ScopeError, match="systemd does not run here"):
        MemoryScope(1 << 20, root)
    (root / "proc/self/cgroup").write_text("", encoding="ascii")
    with pytest.raises(CapError, match="memory cannot be limited here"):
        MemoryCap(1 << 20, root)
