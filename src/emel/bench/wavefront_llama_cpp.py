"""llama.cpp as a lane of the wavefront suite, through the C API that llama-cpp-python binds.

`python -m emel.bench.wavefront_llama_cpp MODEL THREADS CONTEXT SEQUENCES`

One batch for all prompts (in micro-batches of 512), then one batch a step with a token of every sequence, as its own
batched decoding does. A context is made for each number of sequences; other settings are its defaults.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from emel.bench.llama_cpp_model import N_BATCH, LlamaCppModel
from emel.bench.protocol import Ready, private_stdout
from emel.bench.wavefront_protocol import serve_waves

if TYPE_CHECKING:
    from collections.abc import Sequence


class LlamaCppWaves:
    """llama.cpp behind the protocol. Raises RuntimeError when it refuses the model, a context or a batch."""

    def __init__(self, path: str, n_threads: int, n_ctx: int) -> None:
        self._model = LlamaCppModel(path)
        self._api = self._model.api
        self._n_threads, self._n_ctx = n_threads, n_ctx
        self._batch = self._api.llama_batch_init(N_BATCH, 0, 1)
        self._context: Any = None
        self._n_sequences = 0

    def describe(self) -> Ready:
        """What the model says of itself."""
        return self._model.describe()

    def generate(self, prompts: Sequence[Sequence[int]], n_decode: int) -> list[list[float]]:
        """All prompts, then steps of a token each."""
        self._open_context(len(prompts))
        self._api.llama_memory_clear(self._api.llama_get_memory(self._context), True)
        began = time.perf_counter()
        tokens: list[int] = [0] * len(prompts)
        times: list[list[float]] = [[] for _ in prompts]
        whole = [
            (token, position, sequence, position == len(prompt) - 1)
            for sequence, prompt in enumerate(prompts)
            for position, token in enumerate(prompt)
        ]
        for start in range(0, len(whole), N_BATCH):
            self._decode(whole[start : start + N_BATCH], tokens, times, began)
        for step in range(n_decode - 1):
            entries = [(token, len(prompts[sequence]) + step, sequence, True) for sequence, token in enumerate(tokens)]
            self._decode(entries, tokens, times, began)
        return times

    def _open_context(self, n_sequences: int) -> None:
        if n_sequences == self._n_sequences:
            return
        if self._context:
            self._api.llama_free(self._context)
        self._context = self._model.new_context(self._n_ctx, self._n_threads, n_sequences)
        self._n_sequences = n_sequences

    def _decode(
        self,
        entries: Sequence[tuple[int, int, int, bool]],
        tokens: list[int],
        times: list[list[float]],
        began: float,
    ) -> None:
        """Runs a batch of (token, position, sequence, whether logits are wanted), and takes the likeliest tokens."""
        batch = self._batch
        batch.n_tokens = len(entries)
        for index, (token, position, sequence, is_wanted) in enumerate(entries):
            batch.token[index] = token
            batch.pos[index] = position
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = sequence
            batch.logits[index] = int(is_wanted)
        status = self._api.llama_decode(self._context, batch)
        if status:
            raise RuntimeError(f"llama_decode returned {status} for {len(entries)} tokens")
        for index, (_, _, sequence, is_wanted) in enumerate(entries):
            if is_wanted:
                tokens[sequence] = self._model.likeliest(self._context, index)
        now = time.perf_counter() - began
        for _, _, sequence, is_wanted in entries:
            if is_wanted:
                times[sequence].append(now)


def main(arguments: Sequence[str]) -> int:
    """Serves one model until stdin ends."""
    model, n_threads, n_ctx, _ = arguments
    answers = private_stdout()
    return serve_waves(lambda: LlamaCppWaves(model, int(n_threads), int(n_ctx)), sys.stdin, answers)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
