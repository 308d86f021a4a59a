"""Block geometry against the gguf package's table, and the ids that are refused by name."""

from __future__ import annotations

import gguf
import pytest

from emel.tensor import TensorType, TensorTypeError

# The package still lists Q8_1 with float32 scale and sum; ggml's block has been two float16 and 32 bytes since 2024.
STALE = {"Q8_1"}


def test_types_geometry_equals_the_gguf_package() -> None:
    theirs = {each.name: each for each in gguf.GGMLQuantizationType}
    compared = 0
    for ours in TensorType:
        if ours.name in STALE or ours.name not in theirs:  # an older package knows fewer types
            continue
        assert int(theirs[ours.name]) == int(ours)
        assert gguf.GGML_QUANT_SIZES[theirs[ours.name]] == (ours.block_elements, ours.block_bytes)
        compared += 1
    assert compared >= 30


def test_types_q8_1_is_two_halves_and_32_bytes() -> None:
    assert (TensorType.Q8_1.block_elements, TensorType.Q8_1.block_bytes) == (32, 36)


@pytest.mark.parametrize("tensor_type", list(TensorType))
def test_types_n_bytes_counts_whole_blocks(tensor_type: TensorType) -> None:
    cols = tensor_type.block_elements * 3
    assert tensor_type.row_bytes(cols) == 3 * tensor_type.block_bytes
    assert tensor_type.n_bytes(5, cols) == 15 * tensor_type.block_bytes
    assert tensor_type.n_bytes(0, cols) == 0
    assert tensor_type.n_bytes(7, 0) == 0
    assert tensor_type.is_quantized == (tensor_type.block_elements > 1)


@pytest.mark.parametrize("tensor_type", [each for each in TensorType if each.is_quantized])
def test_types_a_broken_block_is_refused(tensor_type: TensorType) -> None:
    block = tensor_type.block_elements
    cols = block + 1
    with pytest.raises(
        TensorTypeError,
        match=f"^a row of {cols} values is not a multiple of {tensor_type.name}'s block of {block}$",
    ):
        tensor_type.n_bytes(1, cols)


@pytest.mark.parametrize(("rows", "cols"), [(-1, 32), (1, -32)])
def test_types_negative_sizes_are_refused(rows: int, cols: int) -> None:
    with pytest.raises(TensorTypeError):
        TensorType.Q4_0.n_bytes(rows, cols)


@pytest.mark.parametrize(
    ("type_id", "name"),
    [
        (4, "Q4_2"),
        (5, "Q4_3"),
        (31, "Q4_0_4_4"),
        (32, "Q4_0_4_8"),
        (33, "Q4_0_8_8"),
        (36, "IQ4_NL_4_4"),
        (37, "IQ4_NL_4_8"),
        (38, "IQ4_NL_8_8"),
    ],
)
def test_types_removed_ids_are_refused_by_name(type_id: int, name: str) -> None:
    with pytest.raises(TensorTypeError, match=rf"^type {type_id} \({name}\) was removed from GGUF: convert"):
        TensorType.from_id(type_id)


@pytest.mark.parametrize(("type_id", "name"), [(133, "Q6_0"), (137, "IQ2_K"), (144, "IQ4_KS"), (399, "Q8_K_R8")])
def test_types_ids_of_a_fork_name_it(type_id: int, name: str) -> None:
    with pytest.raises(TensorTypeError, match=rf"^type {type_id} \({name}\) belongs to ik_llama\.cpp: "):
        TensorType.from_id(type_id)


@pytest.mark.parametrize("type_id", [42, 100, 2**32 - 1])
def test_types_unknown_ids_are_refused(type_id: int) -> None:
    with pytest.raises(TensorTypeError, match=f"^type {type_id} is unknown: allowed are GGUF's ids 0 to 41$"):
        TensorType.from_id(type_id)


def test_types_every_id_is_a_type_or_has_a_reason() -> None:
    for type_id in range(500):
        if type_id in set(TensorType):
            assert TensorType.from_id(type_id) == type_id
            continue
        with pytest.raises(TensorTypeError, match=rf"^type {type_id} (is unknown|\(\w+\) (was removed|belongs to))"):
            TensorType.from_id(type_id)
