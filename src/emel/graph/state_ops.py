"""Operations that remember something of a sequence between runs, outside the KV cache (see ops.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.ops import Operation
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emel.graph.ops import Value, Weight


STATE_REACH = 16
"""How many of a sequence's latest tokens its recurrent state can forget: guesses that were wrong, or a part of a block,
so that every state leads back to the last border of blocks."""


def aligned_state_width(n: int) -> int:
    """Float32 values of a slot that holds n of them: slots begin at 64 bytes (emel_batch.state)."""
    return -(-n // 16) * 16


@dataclass(frozen=True, slots=True)
class StateGeometry:
    """A sequence's recurrent state: in each of `n_layers`, products of `width` float32 values of its latest tokens.

    The next token needs the last `n_past` of them; STATE_REACH more are kept, the one of position p in row p modulo
    their number.
    """

    n_layers: int
    width: int
    n_past: int

    @property
    def n_kept(self) -> int:
        """Products that are kept of each layer."""
        return self.n_past + STATE_REACH

    @property
    def layer_bytes(self) -> int:
        """Bytes of a layer."""
        return 4 * aligned_state_width(self.n_kept * self.width)

    @property
    def n_bytes(self) -> int:
        """Bytes of all layers."""
        return self.n_layers * self.layer_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConv(Operation):
    """Gated short convolution over the tokens of a sequence (LFM2, https://arxiv.org/abs/2511.23404).

    x (tokens, 3n) holds B, C and X of each token: out = C * (bias + sum over j of taps[j] * product of token
    t - (n_taps - 1) + j) with product = B * X. `taps` is (1, n_taps * n), tap by tap, the oldest first. Layer
    `state_layer` of the recurrent state keeps the last n_kept products of each sequence (StateGeometry).
    """

    x: Value
    out: Value
    taps: Weight
    n_taps: int
    state_layer: int
    bias: Weight | None = None

    @property
    def n_kept(self) -> int:
        """Products that are kept of a sequence."""
        return self.n_taps - 1 + STATE_REACH

    @property
    def state_width(self) -> int:
        """Float32 values that a sequence's slot holds of this layer."""
        return self.n_kept * self.out.width

    def inputs(self) -> Iterator[Value]:  # noqa: D102
        yield self.x

    def outputs(self) -> Iterator[Value]:  # noqa: D102
        yield self.out

    def weights(self) -> Iterator[Weight]:  # noqa: D102
        yield self.taps
        if self.bias is not None:
            yield self.bias
