"""Which type each tensor of a quantised file gets: the mixes llama.cpp makes, so that names mean the same everywhere.

Source: `llama_tensor_get_type_impl`, `tensor_allows_quantization` and `tensor_type_fallback` in
https://github.com/ggml-org/llama.cpp/blob/007dbbf3fd17eefe9b47fee45f48f7ba5e62b714/src/llama-quant.cpp (no imatrix).
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING

from emel.lazy_dataclasses import dataclass
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from emel.gguf import TensorInfo

T = TensorType
_VALUE_TYPES = (T.F32, T.F16, T.BF16)
_LAYER = re.compile(r"blk\.(\d+)\.")
# Small, or read as they are by other kernels than the matrices'.
_KEPT = (
    "_norm.weight",
    "ffn_gate_inp.weight",
    "position_embd.weight",
    "token_types.weight",
    "shortconv.conv.weight",
)
_FALLBACKS = {T.Q4_K: T.Q5_0, T.Q5_K: T.Q5_1, T.Q6_K: T.Q8_0}
"""What rows get whose length is no multiple of 256."""


@dataclass(frozen=True, slots=True)
class Mix:
    """A kind of quantised file: the type most matrices get, and GGUF's id of the kind (general.file_type)."""

    name: str
    type: TensorType
    file_type: int


# Ids: `enum llama_ftype` in llama.cpp's include/llama.h.
MIXES = {
    mix.name: mix
    for mix in (
        Mix("F32", T.F32, 0),
        Mix("F16", T.F16, 1),
        Mix("BF16", T.BF16, 32),
        Mix("Q8_0", T.Q8_0, 7),
        Mix("Q4_0", T.Q4_0, 2),
        Mix("Q4_1", T.Q4_1, 3),
        Mix("Q5_0", T.Q5_0, 8),
        Mix("Q5_1", T.Q5_1, 9),
        Mix("Q4_K_S", T.Q4_K, 14),
        Mix("Q4_K_M", T.Q4_K, 15),
        Mix("Q5_K_S", T.Q5_K, 16),
        Mix("Q5_K_M", T.Q5_K, 17),
        Mix("Q6_K", T.Q6_K, 18),
    )
}
ALIASES = {"Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}


def find_mix(name: str) -> Mix | None:
    """The mix of a name in any case, or None."""
    upper = name.upper()
    return MIXES.get(ALIASES.get(upper, upper))


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What the rules ask of a model."""

    architecture: str
    n_layers: int
    n_experts: int
    is_grouped: bool  # fewer key heads than query heads

    @property
    def is_llama_70b(self) -> bool:
        """Eighty layers with grouped queries: its value matrices are small, and get more bits."""
        return self.architecture in ("llama", "qwen2") and self.n_layers == 80 and self.is_grouped


@dataclass(slots=True)
class _Places:
    """The n-th of how many a tensor of a kind is, in the order of layers."""

    values: dict[str, int] = field(default_factory=dict)
    downs: dict[str, int] = field(default_factory=dict)


def choose_types(tensors: Mapping[str, TensorInfo], mix: Mix, shape: ModelShape) -> dict[str, TensorType]:
    """The type of every tensor of a file quantised as `mix`; those not to be quantised keep theirs."""
    places = _Places(_ranks(tensors, _is_value), _ranks(tensors, _is_down))
    is_tied = "output.weight" not in tensors
    return {name: _type_of(info, mix, shape, places, is_tied=is_tied) for name, info in tensors.items()}


def is_quantizable(info: TensorInfo) -> bool:
    """Whether a tensor is a matrix that mixes apply to."""
    name, n_dimensions = info.name, len(info.shape)
    return n_dimensions >= 2 and name.endswith("weight") and not any(each in name for each in _KEPT)


def _type_of(info: TensorInfo, mix: Mix, shape: ModelShape, places: _Places, *, is_tied: bool) -> TensorType:
    if not is_quantizable(info):
        return info.type
    if mix.type in _VALUE_TYPES:
        return mix.type
    if info.name == "output.weight" or (is_tied and info.name == "token_embd.weight"):
        chosen = T.Q8_0 if mix.type is T.Q8_0 or info.cols % mix.type.block_elements else T.Q6_K
    else:
        chosen = _layer_type(info.name, mix, shape, places)
    return _fitting(chosen, info.cols)


def _layer_type(name: str, mix: Mix, shape: ModelShape, places: _Places) -> TensorType:
    is_small_k, is_eight_experts = mix.name == "Q4_K_S", shape.n_experts == 8
    chosen = mix.type
    if is_eight_experts and (_is_value(name) or "attn_k.weight" in name):
        chosen = T.Q8_0
    elif _is_value(name):
        place = places.values[name]
        if _is_raised(mix, place, len(places.values)):
            chosen = T.Q6_K
        elif (is_small_k and place < 4) or (mix.type is T.Q4_K and shape.is_llama_70b):
            chosen = T.Q5_K
    elif _is_down(name):
        place, n = places.downs[name], len(places.downs)
        if _is_raised(mix, place, n):
            chosen = T.Q6_K
        elif is_small_k and place < n // 8:
            chosen = T.Q5_K
    elif "attn_output.weight" in name and is_eight_experts and mix.type is T.Q4_K:
        chosen = T.Q5_K
    return chosen


def _is_raised(mix: Mix, place: int, n: int) -> bool:
    """A medium mix gives more bits to the first and last eighth of the layers, and every third between."""
    return mix.name.endswith("_K_M") and (place < n // 8 or place >= 7 * n // 8 or (place - n // 8) % 3 == 2)


def _fitting(type_: TensorType, cols: int) -> TensorType:
    """The type, or the next one whose blocks rows of so many values consist of."""
    if cols % type_.block_elements:
        type_ = _FALLBACKS.get(type_, T.F16)
    return T.F16 if cols % type_.block_elements else type_


def _is_value(name: str) -> bool:
    return name.endswith(("attn_v.weight", "attn_qkv.weight"))


def _is_down(name: str) -> bool:
    return "ffn_down" in name and name.endswith("weight")


def _ranks(names: Iterable[str], belongs: Callable[[str], bool]) -> dict[str, int]:
    return {name: rank for rank, name in enumerate(sorted(filter(belongs, names), key=_layer_of))}


def _layer_of(name: str) -> int:
    found = _LAYER.search(name)
    return int(found[1]) if found else -1
