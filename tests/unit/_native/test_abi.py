"""abi.py against the header it mirrors, read as text: a field added in one and not in the other fails here."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import pytest

from emel._native import abi

HEADER = re.sub(
    r"/\*.*?\*/", "", (Path(__file__).parents[3] / "native/include/emel.h").read_text(encoding="utf-8"), flags=re.DOTALL
)
OUTSIDE = (
    HEADER.partition("emel_logprobs(")[0]
    + "emel_logprobs("
    + HEADER.partition("emel_logprobs(")[2].partition(";")[0]
    + ";"
)
ROOFLINE = HEADER.partition("EMEL_ROOF_COUNT")[2].partition(";")[2].partition(";")[0] + ";"

STRUCTS = {
    "emel_pack_job": abi.PackJob,
    "emel_op": abi.Op,
    "emel_weight": abi.Weight,
    "emel_plan_desc": abi.PlanDesc,
    "emel_counters": abi.Counters,
    "emel_batch": abi.Batch,
    "emel_yarn": abi.Yarn,
    "emel_logit_bias": abi.LogitBias,
    "emel_breaker": abi.Breaker,
    "emel_sampling": abi.Sampling,
    "emel_choice": abi.Choice,
}
SCALARS: dict[str, type[ctypes._SimpleCData[Any]]] = {
    "uint32_t": ctypes.c_uint32,
    "int32_t": ctypes.c_int32,
    "emel_status": ctypes.c_int32,
    "uint64_t": ctypes.c_uint64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}
LENGTHS = {"EMEL_OP_COUNT": abi.OP_COUNT, "EMEL_MAX_STEPS": abi.MAX_STEPS}


def header_fields(struct: str) -> list[tuple[str, int]]:
    """(name, size in bytes) of each field the header gives the struct, in order."""
    body = re.search(rf"typedef struct {struct} \{{(.*?)\}} {struct};", HEADER, re.DOTALL)
    assert body is not None, struct
    fields = []
    for declaration in filter(None, (part.strip() for part in body[1].split(";"))):
        match = re.fullmatch(r"(?:const )?(\w+)\s*(\*?)\s*(\w+)(?:\[(\w+)\])?", declaration)
        assert match is not None, declaration
        kind, pointer, name, length = match.groups()
        size = 8 if pointer else ctypes.sizeof(SCALARS[kind])
        fields.append((name, size * int(LENGTHS.get(length, length) or 1)))
    return fields


def header_constant(name: str) -> int:
    match = re.search(rf"\b{name}\b(?: =)? (\(?\w+(?: - 1\))?)", HEADER)
    assert match is not None, name
    text = match[1].strip("()").replace("UINT64_MAX", str(2**64 - 1)).replace("UINT32_MAX", str(2**32 - 1))
    value, _, less = text.partition(" - ")
    return int(value.rstrip("u")) - int(less or 0)


@pytest.mark.parametrize("name", STRUCTS)
def test_struct_has_the_fields_of_the_header_in_order(name: str) -> None:
    mirror = STRUCTS[name]
    offset = 0
    seen = []
    for field, size in header_fields(name):
        python_name = field + "_" if field == "in" else field
        descriptor = getattr(mirror, python_name)
        assert (descriptor.offset, descriptor.size) == (offset, size), field
        offset += size
        seen.append(python_name)
    assert [field[0] for field in mirror._fields_] == seen
    assert ctypes.sizeof(mirror) == offset


def test_constants_equal_the_header() -> None:
    assert header_constant(["EMEL_NONE", "UINT64_MAX"][0]) == abi.NONE
    assert header_constant("EMEL_LOGITS") == abi.LOGITS
    assert header_constant("EMEL_NO_WEIGHT") == abi.NO_WEIGHT
    assert header_constant("EMEL_KV_BLOCK") == abi.KV_BLOCK
    assert header_constant("EMEL_ATTENTION_CHUNK") == abi.ATTENTION_CHUNK
    assert header_constant("EMEL_OP_COUNT") == abi.OP_COUNT
    assert header_constant("EMEL_MAX_STEPS") == abi.MAX_STEPS
    assert header_constant("EMEL_MAX_TOP_LOGPROBS") == abi.MAX_TOP_LOGPROBS


def test_enumerations_equal_the_header() -> None:
    kinds = dict(re.findall(r"EMEL_OP_(\w+) = (\d+)", HEADER))
    kinds.pop("COUNT")
    assert {name: int(value) for name, value in kinds.items()} == {kind.name: int(kind) for kind in abi.OpKind}
    routes = dict(re.findall(r"EMEL_ISA_(\w+) = (\d+)", HEADER))
    routes.pop("COUNT")
    assert {name: int(value) for name, value in routes.items()} == {route.name: int(route) for route in abi.Isa}
    kinds = dict(re.findall(r"EMEL_ACTIVATIONS_(\w+) = (\d+)", HEADER))
    kinds.pop("COUNT")
    assert {name: int(value) for name, value in kinds.items()} == {kind.name: int(kind) for kind in abi.Activations}
    roofs = dict(re.findall(r"EMEL_ROOF_(\w+) = (\d+)", HEADER))
    roofs.pop("COUNT")
    assert {name: int(value) for name, value in roofs.items()} == {roof.name: int(roof) for roof in abi.Roof}
    steps = dict(re.findall(r"EMEL_STEP_(\w+) = (\d+)", HEADER))
    assert {name: int(value) for name, value in steps.items()} == {step.name: int(step) for step in abi.Step}
    flags = dict(re.findall(r"#define EMEL_FLAG_(\w+) (\d+)u", HEADER))
    assert {name: int(value) for name, value in flags.items()} == {flag.name: int(flag) for flag in abi.OpFlag}


@pytest.mark.parametrize(("section", "prototypes"), [(OUTSIDE, abi.PROTOTYPES), (ROOFLINE, abi.ROOFLINE)])
def test_prototypes_cover_the_header_with_its_argument_kinds(
    section: str, prototypes: dict[str, abi.Prototype]
) -> None:
    declared = re.findall(r"EMEL_API\s+([\w\s]+?[\s*]+)(emel_\w+)\(([^)]*)\);", section)
    assert {name for _, name, _ in declared} == set(prototypes)
    for result, name, arguments in declared:
        mirror_result, mirror_arguments = prototypes[name]
        texts = [] if arguments.strip() == "void" else [argument.strip() for argument in arguments.split(",")]
        assert len(texts) == len(mirror_arguments), name
        for text, mirror in zip(texts, mirror_arguments, strict=True):
            scalar = SCALARS.get(text.split()[0])
            assert ctypes.sizeof(mirror) == (8 if "*" in text or scalar is None else ctypes.sizeof(scalar)), (
                name,
                text,
            )
            assert ("*" in text) == (mirror is ctypes.c_void_p or issubclass(mirror, ctypes._Pointer)), (name, text)
        if "*" not in result and result.strip() != "void":
            assert mirror_result is SCALARS[result.strip()], name


def test_declare_names_the_functions_a_library_lacks() -> None:
    with pytest.raises(ImportError, match="does not export emel_abi_version, emel_numerics_version"):
        abi.declare(ctypes.CDLL(None))
