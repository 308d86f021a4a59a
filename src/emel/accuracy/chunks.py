"""A text's tokens in chunks, cut as llama.cpp's perplexity tool cuts them, so that figures compare.

Source: `perplexity` in
https://github.com/ggml-org/llama.cpp/blob/b6000/tools/perplexity/perplexity.cpp

1. Tokens are cut into chunks of n_ctx; what is left at the end is not used.
2. Where the model wants a begin token, it stands in place of the first token of every chunk.
3. The first half of a chunk is context: logits of tokens n_ctx // 2 to n_ctx - 2 predict the token behind each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emel.engine.exclusive import LoneSequence
from emel.errors import RequestError
from emel.graph.batch import Outputs
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from emel.engine.model import Model

DEFAULT_CONTEXT = 512
"""Tokens of a chunk, llama.cpp's default."""
LEAST_CONTEXT = 4


@dataclass(frozen=True, slots=True)
class Chunks:
    """The chunks of a text, each of `n_ctx` tokens, in the order of the text."""

    n_ctx: int
    ids: tuple[tuple[int, ...], ...]

    @property
    def first(self) -> int:
        """The first token of a chunk whose logits count."""
        return self.n_ctx // 2

    @property
    def n_scored(self) -> int:
        """Logits of a chunk that count."""
        return self.n_ctx - 1 - self.first


def cut_chunks(ids: Sequence[int], n_ctx: int, bos_id: int | None = None, most: int | None = None) -> Chunks:
    """Cuts a text's tokens, `most` chunks at most; `bos_id`: the begin token, where the model wants one.

    RequestError when there are fewer tokens than a chunk has.
    """
    if n_ctx < LEAST_CONTEXT:
        raise RequestError(f"a chunk of {n_ctx} tokens is too short: {LEAST_CONTEXT} or more are allowed")
    n_chunks = len(ids) // n_ctx
    if not n_chunks:
        raise RequestError(
            f"the text has {len(ids)} tokens: a chunk needs {n_ctx}", hint="give a longer text, or a smaller -c"
        )
    chunks = [list(ids[begin : begin + n_ctx]) for begin in range(0, n_chunks * n_ctx, n_ctx)][:most]
    if bos_id is not None:
        for chunk in chunks:
            chunk[0] = bos_id
    return Chunks(n_ctx, tuple(map(tuple, chunks)))


def chunks_of_text(model: Model, text: bytes, most: int | None = None) -> Chunks:
    """The chunks of a text, as long as the model's context. A line break at the end of the text is not part of it."""
    tokenizer = model.tokenizer
    ids = model.tokenize(text.removesuffix(b"\n"))
    return cut_chunks(ids, model.n_ctx, tokenizer.bos_id if tokenizer.add_bos else None, most)


def visit_scored(
    model: Model,
    chunk: Sequence[int],
    first: int,
    visit: Callable[[NDArray[np.float32], Sequence[int]], None],
) -> None:
    """Computes a chunk and hands out the logits of tokens `first` to the last but one, some at a time, in order.

    visit(rows, next_ids): logits (n, n_vocab) float32, a buffer that is used again, and the n tokens they predict.
    Called between two steps of the model; RequestError for logits that are not finite.
    """
    session = model.engine
    session.check_generates()
    batch = session.batch
    n_rows = min(session.chunk, batch.capacity.max_outputs)
    rows = np.empty((n_rows, session.n_vocab), dtype=np.float32)
    ids, end = list(chunk), len(chunk) - 1

    def compute() -> None:
        with LoneSequence(session) as sequence:
            for begin in range(0, first, session.chunk):
                sequence.compute(ids[begin : min(begin + session.chunk, first)], Outputs.NONE)
            for begin in range(first, end, n_rows):
                sequence.compute(ids[begin : min(begin + n_rows, end)], Outputs.ALL)
                for row in range(batch.n_outputs):
                    rows[row] = batch.logits(row)
                visit(rows[: batch.n_outputs], ids[begin + 1 : begin + 1 + batch.n_outputs])

    session.between_steps(compute, len(ids))
