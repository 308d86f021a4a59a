"""The part of GraphBuilder that writes attention down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.attention_ops import Attention, Pairing, RopeStore, RopeTable
from emel.graph.collector import GraphCollector
from emel.graph.errors import GraphError
from emel.graph.ops import Form

if TYPE_CHECKING:
    from emel.graph.ops import Heads, Value, Weight


class AttentionBuilder(GraphCollector):
    """Calls for attention; each `rope_store` fills the next layer of the KV cache, `attention` reads the last one."""

    def rope_table(self, frequencies: Weight, *, magnitude: float = 1.0) -> Value:
        """(n_tokens, 2 * len(frequencies)): cos and sin of every angle times `magnitude`, shared by all layers."""
        if not magnitude > 0:
            raise GraphError(f"rope_table: the magnitude is {magnitude}, it must be positive")
        out = self._value("rope_table", None, 2 * frequencies.cols)
        self._operations.append(
            RopeTable(out=out, frequencies=frequencies, magnitude=magnitude, layer=self.layer, segment=self._segment)
        )
        return out

    def rope_store(
        self,
        q: Value,
        k: Value,
        v: Value,
        table: Value | None,
        *,
        pairing: Pairing,
        heads: Heads | None = None,
        q_norm: Weight | None = None,
        k_norm: Weight | None = None,
        epsilon: float = 0.0,
    ) -> Value:
        """Rotates q and k, puts k and v into the next layer of the KV cache, returns the rotated q.

        `q_norm` and `k_norm`: RMS norms of each head, before. No table: no rotation. `heads`: where a layer differs
        from the cache, which must have as many key heads or more.
        """
        heads = heads or self.heads
        for name, value, width in (("q", q, heads.q_width), ("k", k, heads.kv_width), ("v", v, k.width)):
            if value.width != width:
                raise GraphError(f"rope_store: {name} has {value.width} values, {heads} needs {width}")
        for norm in (q_norm, k_norm):
            if norm is not None and norm.cols != heads.head_dim:
                raise GraphError(f"rope_store: norm {norm.name!r} has {norm.cols} values, a head {heads.head_dim}")
        rotated = self._value("rotated", q, q.width)
        self._operations.append(
            RopeStore(
                q=q,
                k=k,
                v=v,
                table=table,
                rotated=rotated,
                heads=heads,
                pairing=pairing,
                kv_layer=self._n_kv_layers,
                q_norm=q_norm,
                k_norm=k_norm,
                epsilon=epsilon,
                layer=self.layer,
                segment=self._segment,
            )
        )
        self._n_kv_layers += 1
        return rotated

    def attention(
        self,
        q: Value,
        *,
        scale: float,
        heads: Heads | None = None,
        window: int = 0,
        is_causal: bool = True,
        cap: float = 0.0,
        sinks: Weight | None = None,
    ) -> Value:
        """Attention of the rotated q over the layer of the KV cache that was stored last; see Attention."""
        heads = heads or self.heads
        if q.width != heads.q_width:
            raise GraphError(f"attention: q has {q.width} values, {heads} needs {heads.q_width}")
        if sinks is not None and sinks.cols != heads.n_heads:
            raise GraphError(f"attention: sinks {sinks.name!r} has {sinks.cols} values, {heads} needs {heads.n_heads}")
        if not 0 <= window < 2**32:
            raise GraphError(f"attention: a window of {window} keys")
        scratch = self._value("scratch", q, 0, Form.SCRATCH)
        out = self._value("attention", q, q.width)
        self._operations.append(
            Attention(
                q=q,
                scratch=scratch,
                out=out,
                heads=heads,
                scale=scale,
                window=window,
                is_causal=is_causal,
                cap=cap,
                sinks=sinks,
                kv_layer=self._n_kv_layers - 1,
                layer=self.layer,
                segment=self._segment,
            )
        )
        return out
