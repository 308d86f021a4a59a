"""The route avx_vnni on CPUs that lack it: its code in AVX-512's encoding, and its instructions."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

# Intel SDM volume 2, VPDPBUSD: VEX.256.66.0F38.W0 50 /r. Three-byte prefix; its last byte has W = 0, L = 1, pp = 01.
VEX_VPDPBUSD = re.compile(
    rb"\xc4[\x02\x22\x42\x62\x82\xa2\xc2\xe2][\x05\x0d\x15\x1d\x25\x2d\x35\x3d\x45\x4d\x55\x5d\x65\x6d\x75\x7d]\x50"
)
LEAST_OF_A_KIND = 1000


def digest_text(build: Path, route: str, n_lanes: int) -> str:
    command: list[str | Path] = [build / "native/emel_digest", route, str(n_lanes)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_avx_vnni_code_gives_the_digests_of_the_specification(native_build: Path, routes: dict[str, int]) -> None:
    if "avx512_vnni" not in routes:
        pytest.skip("this CPU lacks AVX-512 VNNI, whose encoding of the instructions the test runs")
    specification = digest_text(native_build, "scalar", 1)
    for n_lanes in (1, 3):
        assert digest_text(native_build, "avx_vnni_evex", n_lanes) == specification


def test_avx_vnni_unit_is_in_the_encoding_of_cpus_without_avx512(native_build: Path, routes: dict[str, int]) -> None:
    unit = native_build / "native/libisa_avx_vnni.a.p/src_isa_avx_vnni.cc.o"
    if not unit.exists():
        pytest.skip("not an x86-64 build")
    assert len(VEX_VPDPBUSD.findall(unit.read_bytes())) > LEAST_OF_A_KIND
