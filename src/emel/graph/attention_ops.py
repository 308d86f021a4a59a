"""Operations of attention, over keys and values in the KV cache, and of the positions they are at (see ops.py)."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from emel.graph.ops import Operation
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emel.graph.ops import Heads, Value, Weight


class Pairing(Enum):
    """Which dimensions of a head RoPE rotates together."""

    ADJACENT = 0  # (0, 1), (2, 3) ...
    HALVES = 1  # (0, n/2), (1, n/2 + 1) ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeTable(Operation):
    """out = cos, sin pairs of each token's position times the inverse frequencies, all times `magnitude`."""

    out: Value
    frequencies: Weight
    magnitude: float = 1.0  # more than 1 where YaRN or LongRoPE stretch the context

    def outputs(self) -> Iterator[Value]:  # noqa: D102
        yield self.out

    def weights(self) -> Iterator[Weight]:  # noqa: D102
        yield self.frequencies


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeStore(Operation):
    """rotated = q turned by the table, in place; k likewise, then k and v go to layer `kv_layer` of the KV cache.

    `q_norm` and `k_norm` (head_dim) are RMS norms of each head before it is turned; no table: nothing is turned.
    """

    q: Value
    k: Value
    v: Value
    table: Value | None
    rotated: Value
    heads: Heads
    pairing: Pairing
    kv_layer: int
    q_norm: Weight | None = None
    k_norm: Weight | None = None
    epsilon: float = 0.0  # of the norms

    def inputs(self) -> Iterator[Value]:  # noqa: D102
        yield from (self.q, self.k, self.v)
        if self.table is not None:
            yield self.table

    def outputs(self) -> Iterator[Value]:  # noqa: D102
        yield self.rotated

    def weights(self) -> Iterator[Weight]:  # noqa: D102
        for norm in (self.q_norm, self.k_norm):
            if norm is not None:
                yield norm

    def in_place(self) -> Iterator[tuple[Value, Value]]:  # noqa: D102
        yield self.rotated, self.q

    def spoils(self) -> Iterator[Value]:  # noqa: D102
        yield self.q
        yield self.k


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention(Operation):
    """out = attention of q over layer `kv_layer` of the KV cache, scores times `scale`.

    A query sees its own key and those before it, `window` of them in all (0: all). `is_causal` False: every key of its
    sequence, which must be one batch, or those at most window / 2 away. `cap`: scores become cap * tanh(score / cap).
    `sinks` (n_heads): a score of each head without a value (https://arxiv.org/abs/2309.17453).
    """

    q: Value
    scratch: Value
    out: Value
    heads: Heads
    scale: float
    kv_layer: int
    window: int = 0
    is_causal: bool = True
    cap: float = 0.0
    sinks: Weight | None = None

    def inputs(self) -> Iterator[Value]:  # noqa: D102
        yield self.q

    def outputs(self) -> Iterator[Value]:  # noqa: D102
        yield self.scratch
        yield self.out

    def weights(self) -> Iterator[Weight]:  # noqa: D102
        if self.sinks is not None:
            yield self.sinks
