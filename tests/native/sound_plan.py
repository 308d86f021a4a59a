"""A sound plan with a record of every kind and a run of it: what the tests of refusals damage in one place each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emel._native import LIBRARY
from emel._native.abi import LOGITS, OpFlag, OpKind
from emel.tensor.types import TensorType
from native.small_plan import SmallPlan, quantized_rows

if TYPE_CHECKING:
    from emel.kernel.pool import LanePool

N_VOCAB, WIDTH, HEAD_DIM = 8, 32, 16
# Weights by index: two block matrices, then floats.
EMBEDDING, QUERY, KEY, FREQUENCIES, NORM, BIAS, OUTPUT, N_WEIGHTS = range(8)


class SoundPlan(SmallPlan):
    """Four tokens of two sequences, two outputs, two heads of 16 that share a kv head, one KV layer of eight blocks."""

    def __init__(self, pool: LanePool) -> None:
        super().__init__(max_tokens=4, max_outputs=2, max_sequences=2, n_vocab=N_VOCAB)
        self.desc.n_kv_layers, self.desc.n_kv_heads, self.desc.head_dim = 1, 1, HEAD_DIM
        self._add_weights(pool)
        self._add_records()

    def _add_weights(self, pool: LanePool) -> None:
        rng = np.random.default_rng(0)
        for rows in (N_VOCAB, WIDTH, HEAD_DIM):
            raw, _ = quantized_rows(rng.standard_normal((rows, WIDTH)).astype(np.float32), TensorType.Q8_0)
            self.matrix(pool, TensorType.Q8_0, raw, rows, WIDTH)
        self.vector(0.5 ** np.arange(HEAD_DIM // 2), np.float64)
        self.vector(np.ones(WIDTH))
        self.vector(rng.standard_normal(WIDTH))
        output = rng.standard_normal((N_VOCAB, WIDTH)).astype(np.float32)
        self.matrix(pool, TensorType.F32, output.tobytes(), N_VOCAB, WIDTH)

    def _add_records(self) -> None:
        wide = 4 * WIDTH * 4
        x, q, out, gated, gathered = (self.place(wide) for _ in range(5))
        k, v, table = (self.place(4 * HEAD_DIM * 4) for _ in range(3))
        quantized = self.place(4 * self.record_bytes(WIDTH))
        scratch = self.place(LIBRARY.emel_attention_scratch(4, 2, 1, HEAD_DIM, 8))
        heads = [2, 1, HEAD_DIM]
        self.add(OpKind.EMBED, out=[x], weight={0: EMBEDDING}, param=[1.0])
        self.add(OpKind.ROPE_TABLE, out=[table], weight={0: FREQUENCIES})
        self.add(OpKind.RMS_NORM, in_=[x, x], out=[out, quantized], weight={0: NORM}, dim=[WIDTH], param=[1e-5])
        weights = {0: QUERY, 1: KEY, 2: KEY, 4: BIAS}
        self.add(OpKind.MATMUL, in_=[quantized], out=[q, k, v], weight=weights, dim=[WIDTH, 3])
        self.add(OpKind.ROPE_STORE, in_=[q, k, v, table], dim=[*heads, HEAD_DIM, 0, 0])
        self.add(OpKind.ATTENTION, in_=[q, scratch], out=[out], dim=[*heads, 0], param=[0.25])
        self.add(OpKind.QUANTIZE, in_=[out], out=[quantized], dim=[WIDTH])
        self.add(OpKind.GATED, in_=[out, x], out=[gated, quantized], dim=[WIDTH, 0])
        self.add(OpKind.ADD, in_=[x, out, table], out=[x], dim=[WIDTH], param=[1.0])
        self.add(OpKind.GATHER, in_=[gated], out=[gathered], dim=[WIDTH])
        self.add(
            OpKind.MATMUL,
            in_=[gathered],
            out=[LOGITS],
            weight={0: OUTPUT},
            dim=[WIDTH, 1],
            flags=OpFlag.OUTPUT_ROWS,
            segment=1,
        )
        self.add(OpKind.ARGMAX, dim=[N_VOCAB], segment=1)

    def record(self, name: str) -> int:
        """The index of the first record of a kind; "LOGITS" for the second MATMUL."""
        if name == "LOGITS":
            return len(self.ops) - 2
        return next(index for index, op in enumerate(self.ops) if op.kind == OpKind[name])
