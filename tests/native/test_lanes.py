"""Every operation of the sixteen-lane vocabulary on values that bite: the same bits on every route of this machine."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow
TILES = 3  # dot products come once per size of token tile


def lanes_text(build: Path, route: str) -> str:
    return subprocess.run([build / f"native/emel_lanes_{route}"], capture_output=True, text=True, check=True).stdout


def test_lanes_give_the_text_of_the_specification(lanes_build: Path, routes: dict[str, int]) -> None:
    specification = lanes_text(lanes_build, "scalar")
    runnable = [route for route in routes if route != "avx512_amx"]  # it has the lanes of avx512_vnni
    if "avx512_vnni" in routes:
        runnable.append("avx_vnni_evex")
    for route in runnable:
        assert lanes_text(lanes_build, route) == specification, route


def test_lanes_dot_products_do_not_depend_on_the_tile(lanes_build: Path) -> None:
    digests = defaultdict(list)
    for line in lanes_text(lanes_build, "scalar").splitlines():
        name, digest = line.rsplit(" ", 1)
        digests[name].append(digest)
    dots = {name: found for name, found in digests.items() if name.startswith("dot ")}
    assert len(dots) == 2 * 6 * 3
    assert {(len(found), len(set(found))) for found in dots.values()} == {(TILES, 1)}
    assert len({found[0] for found in digests.values()}) == len(digests)
