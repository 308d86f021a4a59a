"""The control groups (versions 1 and 2) this process is in, from the kernel's own files.

Linux kernel documentation: admin-guide/cgroup-v2, admin-guide/cgroup-v1, and cgroups(7) for /proc/self/cgroup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def group_folders(root: Path, controller: str) -> list[tuple[Path, int]]:
    """Folders of the groups that have `controller`, and their version; from this process's own up to the topmost.

    A limit of any of them holds. In a container the path told may be the host's, which is not visible; its own group is
    then the mount itself, the last of the list.
    """
    found: list[tuple[Path, int]] = []
    for line in read_text(root / "proc/self/cgroup").splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0":
            mount, version = root / "sys/fs/cgroup", 2
            if (mount / "unified").is_dir():  # both versions side by side
                mount = mount / "unified"
        elif controller in controllers.split(","):
            mount, version = root / "sys/fs/cgroup" / controller, 1
        else:
            continue
        folder = mount / path.lstrip("/")
        while folder != mount and mount in folder.parents:
            found.append((folder, version))
            folder = folder.parent
        found.append((mount, version))
    return found


def read_text(path: Path) -> str:
    """The text of a file, empty when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def read_count(path: Path) -> int | None:
    """The number a file holds; None for a missing file and for words such as `max` (and for -1), which set no limit."""
    text = read_text(path).strip()
    return int(text) if text.isdecimal() else None


def read_fields(path: Path, scale: int = 1) -> dict[str, int]:
    """Lines `name: 12 kB` and `name 12` as a dictionary, each number times `scale`."""
    fields = {}
    for line in read_text(path).splitlines():
        words = line.replace(":", " ").split()
        if len(words) >= 2 and words[1].isdecimal():
            fields[words[0]] = int(words[1]) * scale
    return fields
