"""A hard limit of memory from systemd: each child in a scope of its own, where this process may make no group itself.

systemd.io "Control Group APIs and Delegation"; systemd-run(1), systemd.resource-control(5). Version 2 groups only: the
limit is read back from the kernel before it is trusted.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from emel.kernel.control_groups import read_text

if TYPE_CHECKING:
    from collections.abc import Sequence

_SECONDS = 30
# The group of the shell that runs this, below the mount that is its first argument.
_OWN_GROUP = 'sed -n "s/^0:://p" "$1"'


class ScopeError(OSError):
    """There is no scope to be had; the text says why."""


class MemoryScope:
    """Limits each child to `n_bytes` by a transient scope; ScopeError where systemd gives none that holds."""

    def __init__(self, n_bytes: int, root: Path) -> None:
        self._n_bytes, self._root = n_bytes, root
        program = shutil.which("systemd-run")
        if program is None or not (root / "run/systemd/system").is_dir():  # sd_booted(3)
            raise ScopeError("systemd does not run here")
        self._program = program
        self._folder = Path(tempfile.mkdtemp(prefix="emel-bench-"))
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        show = f'cat "$0$({_OWN_GROUP})/memory.max"'
        command = [*self._scope(), "sh", "-c", show, self._mount, self._membership]
        try:
            found = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ScopeError(f"systemd-run: {error}") from error
        if found.returncode:
            raise ScopeError(f"systemd-run: {found.stderr.strip() or f'it ended with code {found.returncode}'}")
        if found.stdout.strip() != str(self._n_bytes):
            raise ScopeError(f"systemd-run: the limit of its scope is {found.stdout.strip() or 'unknown'}")

    @property
    def _mount(self) -> str:
        return str(self._root / "sys/fs/cgroup")

    @property
    def _membership(self) -> str:
        return str(self._root / "proc/self/cgroup")

    def _scope(self) -> list[str]:
        user = [] if os.geteuid() == 0 else ["--user"]
        limits = ["-p", f"MemoryMax={self._n_bytes}", "-p", "MemorySwapMax=0"]
        return [self._program, *user, "--scope", "--quiet", "--collect", *limits, "--"]

    def command(self, command: Sequence[str]) -> list[str]:
        """The command that runs another one within the limit, as the same process."""
        enter = f'{_OWN_GROUP} > "$0" && shift && exec "$@"'
        return [*self._scope(), "sh", "-c", enter, str(self._folder / "group"), self._membership, *command]

    def peak_bytes(self) -> int | None:
        """The most memory the child had that was started last; None once it has ended, or where no kernel says."""
        group = read_text(self._folder / "group")
        text = read_text(Path(f"{self._mount}{group}/memory.peak")) if group else ""
        return int(text) if text.isdecimal() else None

    def close(self) -> None:
        """Gives the notes of the scopes back; these end with their children."""
        shutil.rmtree(self._folder, ignore_errors=True)
