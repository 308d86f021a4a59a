"""Rotary position embeddings as files describe them: base, rotated dimensions, and how the context was stretched.

    none, linear   all frequencies divided by one factor              https://arxiv.org/abs/2306.15595
    yarn           high frequencies kept, low ones divided            https://arxiv.org/abs/2309.00071
    longrope       a divisor for each frequency, from tensors; one set up to the original context, one beyond
                                                                      https://arxiv.org/abs/2402.13753
    llama3         a divisor for each frequency, computed at conversion, from a tensor (rope_freqs.weight)

NTK-aware scaling is a larger base: converters write the base that results, so it is "none" here.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from emel.kernel.packing import Vector
from emel.kernel.rope import long_rope_magnitude, rope_frequencies, yarn_frequencies
from emel.lazy_dataclasses import dataclass
from emel.model.binding import read_vector
from emel.model.errors import ModelError
from emel.model.parameters import positive_float, positive_int
from emel.model.tensors import ExpectedTensor, Role
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from emel.gguf import GgufFile, Metadata

FREQUENCIES = "rope.frequencies"  # made at load, no tensor of the file
LOCAL_FREQUENCIES = "rope.frequencies.local"  # of layers with a sliding window, where these differ
FACTORS = "rope_freqs.weight"
LONG_FACTORS = "rope_factors_long.weight"
SHORT_FACTORS = "rope_factors_short.weight"


class Scaling(Enum):
    """How a context was stretched; GGUF's own words."""

    NONE = "none"
    LINEAR = "linear"
    YARN = "yarn"
    LONG = "longrope"


@dataclass(frozen=True, slots=True)
class Rope:
    """`n_rot` dimensions of each head are turned; `original_context` is the one before stretching, in tokens."""

    n_rot: int
    base: float
    original_context: int
    scaling: Scaling = Scaling.NONE
    factor: float = 1.0  # of LINEAR and YARN
    attention_factor: float = 1.0  # cosines and sines are multiplied by it
    beta_fast: float = 32.0  # of YARN: turns within the original context above which a frequency stays as it is
    beta_slow: float = 1.0
    keep_fractions: bool = False  # of YARN: the ends of its ramp are not rounded

    @property
    def magnitude(self) -> float:
        """What cosines and sines are multiplied by."""
        return self._yarn()[1] * self.attention_factor if self.scaling is Scaling.YARN else self.attention_factor

    def frequencies(self, factors: Sequence[float] | None = None) -> array[float]:
        """(n_rot / 2,) float64 radians a position, divided by `factors` where a file has some."""
        if self.scaling is Scaling.YARN:
            return self._yarn()[0]
        return rope_frequencies(self.base, self.n_rot, factors=factors, linear_scale=self.factor)

    def _yarn(self) -> tuple[array[float], float]:
        return yarn_frequencies(
            self.base,
            self.n_rot,
            factor=self.factor,
            original_context=self.original_context,
            beta_fast=self.beta_fast,
            beta_slow=self.beta_slow,
            keep_fractions=self.keep_fractions,
        )


def read_rope(metadata: Metadata, name: str, *, head_dim: int, n_ctx: int, base: float = 10000.0) -> Rope:
    """From the metadata of architecture `name`; `base` is what the architecture takes without the key.

    MetadataError or ModelError name the key.
    """
    n_rot = positive_int(metadata, f"{name}.rope.dimension_count", head_dim)
    if n_rot % 2 or n_rot > head_dim:
        raise ModelError(f"'{name}.rope.dimension_count' is {n_rot}: an even number up to {head_dim} is needed")
    key = f"{name}.rope.scaling."
    original = positive_int(metadata, f"{key}original_context_length", n_ctx)
    scaling = _scaling(metadata, name)
    factor = positive_float(metadata, f"{key}factor", positive_float(metadata, f"{name}.rope.scale_linear", 1.0))
    magnitude = 1.0
    if scaling is Scaling.LONG and original > 1:
        magnitude = long_rope_magnitude(n_ctx / original, original)
    return Rope(
        n_rot=n_rot,
        base=positive_float(metadata, f"{name}.rope.freq_base", base),
        original_context=original,
        scaling=scaling,
        factor=factor if scaling in (Scaling.LINEAR, Scaling.YARN) else 1.0,
        attention_factor=positive_float(metadata, f"{key}attn_factor", magnitude),
        beta_fast=positive_float(metadata, f"{key}yarn_beta_fast", 32.0),
        beta_slow=positive_float(metadata, f"{key}yarn_beta_slow", 1.0),
    )


def _scaling(metadata: Metadata, name: str) -> Scaling:
    """Files without a type but with a factor are from before there were types, when all scaling was linear."""
    kind = metadata.get_str(f"{name}.rope.scaling.type", "linear")
    try:
        return Scaling(kind)
    except ValueError:
        known = ", ".join(repr(each.value) for each in Scaling)
        raise ModelError(f"'{name}.rope.scaling.type' is {kind!r}: EMEL knows {known}") from None


def factor_tensors(rope: Rope) -> list[ExpectedTensor]:
    """The tensors that may divide frequencies."""
    shape = (rope.n_rot // 2,)
    return [
        ExpectedTensor(name, shape, is_required=False, role=Role.PARAMETER)
        for name in (FACTORS, LONG_FACTORS, SHORT_FACTORS)
    ]


def frequency_vector(rope: Rope, file: GgufFile, n_ctx: int, name: str = FREQUENCIES) -> Vector:
    """The weight `name`: frequencies divided by the file's factors, those for `n_ctx` tokens of context."""
    tensor = next((each for each in _factors_for(rope, n_ctx) if each in file.tensors), None)
    return plain_vector(rope, name, None if tensor is None else read_vector(file, tensor))


def plain_vector(rope: Rope, name: str, factors: Sequence[float] | None = None) -> Vector:
    """The weight `name`: frequencies divided by given factors or by none."""
    frequencies = rope.frequencies(factors)
    return Vector(name, TensorType.F64, len(frequencies), frequencies)


def takes_long_factors(rope: Rope | None, file: GgufFile, n_ctx: int) -> bool:
    """Whether a context of `n_ctx` tokens has other frequencies than a short one: some files have factors for both."""
    if rope is None or FACTORS in file.tensors or n_ctx <= rope.original_context:
        return False
    return LONG_FACTORS in file.tensors or SHORT_FACTORS in file.tensors


def _factors_for(rope: Rope, n_ctx: int) -> tuple[str, str]:
    return FACTORS, LONG_FACTORS if n_ctx > rope.original_context else SHORT_FACTORS
