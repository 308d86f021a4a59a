"""The control groups this process is in: what limits its CPUs and its memory.

cgroups(7); admin-guide/cgroup-v1 and admin-guide/cgroup-v2 of the Linux kernel's documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def group_folders(controller: str, root: Path) -> Iterator[tuple[Path, int]]:
    """This process's groups of a controller ("cpu", "memory"), its own first, then those above it: each limit holds.

    With each, the version of its hierarchy, 1 or 2. Inside a container the path told may be the host's, which is not
    visible; its own group is then the mount itself. `root` stands in for the machine in tests.
    """
    for line in read_text(root / "proc/self/cgroup").splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        mount, version = root / "sys/fs/cgroup", 2
        if hierarchy != "0":
            mount, version = mount / controller, 1
            if controller not in controllers.split(","):
                continue
        elif (mount / "unified").is_dir():  # both versions side by side
            mount /= "unified"
        folder = mount / path.lstrip("/")
        yield from ((each, version) for each in (folder, *folder.parents) if each == mount or mount in each.parents)


def read_text(path: Path) -> str:
    """What a file of the kernel says; empty when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
