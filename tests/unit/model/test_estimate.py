from __future__ import annotations

import pytest

from emel.gguf import TensorInfo
from emel.model.estimate import decode_bytes
from emel.tensor.types import TensorType


def tensors(**n_bytes: int) -> dict[str, TensorInfo]:
    """Infos by name; `_` stands for `.`, but before `embd` and `exps`."""
    names = {
        name.replace("_", ".").replace(".embd", "_embd").replace(".exps", "_exps"): n for name, n in n_bytes.items()
    }
    return {name: TensorInfo(name, (n,), TensorType.F32, 0, n) for name, n in names.items()}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (tensors(token_embd_weight=100, a=7), 107),
        (tensors(token_embd_weight=100, a=7, output_weight=90), 97),
        (tensors(a=7), 7),
        (tensors(token_embd_weight=100, up_exps_weight=50), None),
    ],
)
def test_decode_bytes_are_those_a_token_reads(found: dict[str, TensorInfo], expected: int | None) -> None:
    assert decode_bytes(found) == expected
