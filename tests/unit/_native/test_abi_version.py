"""The ABI version is made of the headers' declarations, so none can change and leave it as it was."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from emel._native import library

INCLUDE = Path(__file__).parents[3] / "native/include"
DEFINITION = re.compile(r"#define EMEL_ABI_VERSION (0x[0-9a-f]{8})u")


def declarations(headers: str) -> str:
    """The text without comments, the version itself and what white space there is."""
    bare = re.sub(r"/\*.*?\*/", " ", DEFINITION.sub("", headers), flags=re.DOTALL)
    return " ".join(bare.split())


def version_of(headers: str) -> str:
    """The first 32 bits of the SHA-256 of the declarations."""
    return f"0x{sha256(declarations(headers).encode()).hexdigest()[:8]}"


HEADERS = "\n".join(path.read_text(encoding="utf-8") for path in sorted(INCLUDE.glob("emel*.h")))


def test_version_is_that_of_the_headers() -> None:
    due = version_of(HEADERS)
    assert DEFINITION.findall(HEADERS) == [due], f"declarations changed: EMEL_ABI_VERSION in emel.h is to be {due}u"
    assert f"{library.ABI_VERSION:#010x}" == due, f"declarations changed: ABI_VERSION in library.py is to be {due}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("uint64_t n_jobs);", "uint32_t n_jobs);"),
        ("EMEL_INTERNAL = 5", "EMEL_INTERNAL = 6"),
        ("uint32_t emel_abi_version(void);", "uint32_t emel_abi_version(void); void emel_more(void);"),
    ],
)
def test_version_changes_with_a_declaration(old: str, new: str) -> None:
    assert old in HEADERS
    assert version_of(HEADERS.replace(old, new, 1)) != version_of(HEADERS)


def test_version_stays_with_comments_and_line_breaks() -> None:
    text = HEADERS.replace("EMEL_API ", "/* an aside */\n  EMEL_API ")
    assert version_of(text) == version_of(HEADERS)


def test_loader_refuses_a_library_of_other_declarations(tmp_path: Path) -> None:
    copy = tmp_path / "libemel.so"
    raw = library.library_path().read_bytes()
    version = library.ABI_VERSION.to_bytes(4, sys.byteorder)
    assert version in raw
    copy.write_bytes(raw.replace(version, (library.ABI_VERSION ^ 1).to_bytes(4, sys.byteorder)))
    assert ctypes.CDLL(str(copy)).emel_abi_version() & 0xFFFFFFFF == library.ABI_VERSION ^ 1
    python = shutil.which(sys.executable)
    assert python is not None
    done = subprocess.run(
        [python, "-c", "import emel._native"],
        env={"EMEL_LIBRARY": str(copy), "PYTHONPATH": str(Path(library.__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert (
        f"has ABI version {library.ABI_VERSION ^ 1:#010x}, this package needs {library.ABI_VERSION:#010x}"
        in done.stderr
    )
