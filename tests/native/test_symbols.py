"""What the compiled code shows and asks for: the linker must never mix code of one instruction set into another's."""

from __future__ import annotations

import platform
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from emel._native.library import library_path
from native.conftest import ROOT, run_build_tool
from native.elf import DYNSYM, GLOBAL, LOCAL, UNIQUE, WEAK, Elf, Symbol

if TYPE_CHECKING:
    from pathlib import Path

HEADER = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "native/include").glob("*.h")))
KERNEL_TABLE = re.compile(r"_ZN4emel\d+kKernels\w+E")
# What clang may call for copies and fills of its own making. No mathematics: a library's rounding is not ours.
MEMORY_FUNCTIONS = {"memcpy", "memmove", "memset", "memcmp"}
SCALAR_FMA = {"fmaf"}  # the specification's fused multiply-add where the CPU's baseline has none; exact by IEEE 754
SYSTEM_LIBRARIES = re.compile(r"(libc|libm|libpthread|libgcc_s|ld-linux[\w-]*)\.so\.\d+|ld-musl.*|libc\.so")

N_TABLES = {"avx512_vnni": 2}  # avx512_amx is made in its unit

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="the objects of this system are no ELF files")


def isa_objects(build: Path) -> dict[str, Elf]:
    """Name of an instruction set -> the object of its kernels."""
    found = {}
    for path in build.glob("native/libisa_*.a.p/*.o"):
        name = path.parent.name.removeprefix("libisa_").removesuffix(".a.p")
        assert name not in found, f"{name} has several objects: each is to have one"
        found[name] = Elf(path)
    return found


def outside(symbols: list[Symbol]) -> list[Symbol]:
    """Those that the linker sees."""
    return [symbol for symbol in symbols if symbol.binding != LOCAL]


def test_an_isa_unit_defines_its_kernel_table_alone(native_build: Path) -> None:
    """No weak or once-only symbol either: of several copies the linker keeps any, perhaps one an old CPU cannot run."""
    tables = set()
    for name, unit in isa_objects(native_build).items():
        defined = [symbol for symbol in outside(unit.symbols()) if symbol.is_defined]
        assert {symbol.binding for symbol in defined} == {GLOBAL}, f"{name}: {defined}"
        assert len(defined) == N_TABLES.get(name, 1), f"{name}: {defined}"
        for symbol in defined:
            assert KERNEL_TABLE.fullmatch(symbol.name), f"{name}: {symbol}"
            assert symbol.name not in tables, symbol.name
            tables.add(symbol.name)


def test_an_isa_unit_calls_nothing_that_computes(native_build: Path) -> None:
    for name, unit in isa_objects(native_build).items():
        allowed = MEMORY_FUNCTIONS | (SCALAR_FMA if name == "scalar" else set())
        wanted = {symbol.name for symbol in outside(unit.symbols()) if not symbol.is_defined}
        assert wanted - {"_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail"} <= allowed, name


def test_every_route_of_this_machine_has_a_unit_that_is_looked_at(native_build: Path, routes: dict[str, int]) -> None:
    assert set(routes) - {"avx512_amx"} <= set(isa_objects(native_build))


@pytest.fixture(scope="module")
def library(native_build: Path) -> Elf:
    return Elf(native_build / "native/libemel.so")


def test_the_library_exports_what_the_header_declares(library: Elf) -> None:
    declared = set(re.findall(r"EMEL_API\s+[\w\s*]+?\b(emel_\w+)\(", HEADER))
    assert len(declared) > 25
    exported = [s for s in outside(library.symbols(DYNSYM)) if s.is_defined and s.visibility != 2]
    assert {symbol.name for symbol in exported} - {"_init", "_fini"} == declared
    assert {symbol.binding for symbol in exported} == {GLOBAL}
    assert not [symbol for symbol in exported if symbol.binding in (WEAK, UNIQUE)]


def test_the_library_asks_for_the_c_library_alone(library: Elf) -> None:
    needed = library.needed()
    assert needed
    assert [name for name in needed if not SYSTEM_LIBRARIES.fullmatch(name)] == []


def test_the_library_uses_no_cpp_runtime_no_openmp_and_no_foreign_mathematics(library: Elf) -> None:
    wanted = {symbol.name for symbol in library.symbols(DYNSYM) if not symbol.is_defined}
    assert "posix_memalign" in wanted  # the table is the right one
    foreign = re.compile(r"_Z|__cxa_(?!finalize)|__gxx|GOMP|omp_|__kmpc|cblas|(exp|log|sin|cos|tan|pow|tanh|erf)f?$")
    assert [name for name in wanted if foreign.match(name)] == []


def test_a_weak_symbol_in_an_isa_unit_would_be_seen(tmp_path: Path) -> None:
    """Guards the reader: an inline function with outside linkage is what the rule forbids."""
    source = tmp_path / "weak.cc"
    source.write_text("inline int shared(int x) { return x + 1; }\nint (*kept)(int) = shared;\nint own = 1;\n")
    run_build_tool("python-zig", "c++", "-O1", "-c", source, "-o", tmp_path / "weak.o")
    found = {(s.name, s.binding) for s in outside(Elf(tmp_path / "weak.o").symbols()) if s.is_defined}
    assert {("_Z6sharedi", WEAK), ("own", GLOBAL)} <= found


def test_the_reader_agrees_with_nm() -> None:
    nm = "/usr/bin/nm"
    try:
        text = subprocess.run([nm, "-D", library_path()], capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        pytest.skip("no nm here")
    listed = {line.split()[-1].partition("@")[0] for line in text.splitlines()}
    assert {symbol.name for symbol in Elf(library_path()).symbols(DYNSYM) if symbol.binding != LOCAL} == listed
