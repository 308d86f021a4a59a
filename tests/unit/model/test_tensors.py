from __future__ import annotations

import pytest

from emel.gguf import TensorInfo
from emel.model.errors import ModelError
from emel.model.tensors import ExpectedTensor, Role, check_tensors, matrix, present, vector
from emel.tensor.types import TensorType

EXPECTED = [matrix("w", 4, 8), vector("n", 8), matrix("o", 4, 8, is_required=False)]


def found(**shapes: tuple[int, ...]) -> dict[str, TensorInfo]:
    return {name: TensorInfo(name, shape, TensorType.F32, 0, 0) for name, shape in shapes.items()}


def test_tensors_that_match_are_accepted() -> None:
    check_tensors(EXPECTED, found(w=(4, 8), n=(8,)), "llama")
    check_tensors(EXPECTED, found(w=(4, 8), n=(8,), o=(4, 8)), "llama")


def test_missing_tensors_are_named_with_what_was_expected() -> None:
    with pytest.raises(ModelError, match=r"^the file lacks tensor 'n' \(8,\) that a llama model needs$"):
        check_tensors(EXPECTED, found(w=(4, 8)), "llama")
    many = [matrix(f"w{i}", 1, 1) for i in range(9)]
    with pytest.raises(ModelError, match=r"lacks tensors 'w0' \(1, 1\), 'w1' \(1, 1\), 'w2' \(1, 1\) and 6 more that"):
        check_tensors(many, {}, "llama")


def test_surplus_tensors_are_named() -> None:
    with pytest.raises(ModelError, match="the file has tensor 'x' that EMEL does not know in a llama model; ignoring"):
        check_tensors(EXPECTED, found(w=(4, 8), n=(8,), x=(1,)), "llama")


@pytest.mark.parametrize("shape", [(8, 4), (4,), (4, 8, 1)])
def test_misshapen_tensors_are_named_with_both_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError) as caught:
        check_tensors(EXPECTED, found(w=shape, n=(8,)), "llama")
    assert str(caught.value) == f"tensor 'w' has shape {shape}: the metadata asks for (4, 8)"


def test_types_without_kernels_are_named() -> None:
    tensors = found(w=(4, 8), n=(8,))
    tensors["w"] = TensorInfo("w", (4, 8), TensorType.NVFP4, 0, 0)
    with pytest.raises(ModelError, match="tensor 'w' is NVFP4, which EMEL cannot compute with yet; supported are F32"):
        check_tensors(EXPECTED, tensors, "llama")


def test_present_keeps_the_architectures_order_and_role() -> None:
    tensors = found(o=(4, 8), n=(8,), w=(4, 8), p=(2,))
    expected = [*EXPECTED, ExpectedTensor("p", (2,), role=Role.PARAMETER)]
    assert [info.name for info in present(expected, tensors, Role.MATRIX)] == ["w", "o"]
    assert [info.name for info in present(expected, tensors, Role.VECTOR)] == ["n"]
    assert [info.name for info in present(expected, tensors, Role.PARAMETER)] == ["p"]
