"""llama.cpp as a benchmark lane, through the C API that llama-cpp-python binds.

`python -m emel.bench.lane_llama_cpp MODEL THREADS CONTEXT [mapped]`

Its own defaults (memory mapping, weight repacking, flash attention as it decides, float16 KV cache) with batches and
micro-batches of 512; logits for the last token of a prompt alone; tokens chosen by argmax outside llama.cpp's samplers.
`mapped`: no weight repacking, so that weights stay in the page cache, where a limit of memory can push them out.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from emel.bench.llama_cpp_model import N_BATCH, LlamaCppModel
from emel.bench.protocol import Ready, Timings, private_stdout, serve

if TYPE_CHECKING:
    from collections.abc import Sequence


class LlamaCppEngine:
    """llama.cpp behind the protocol. Raises RuntimeError when it refuses the model, the context or a batch."""

    def __init__(self, path: str, n_threads: int, n_ctx: int, *, is_mapped: bool = False) -> None:
        self._model = LlamaCppModel(path, is_mapped=is_mapped)
        self._api = self._model.api
        self._context = self._model.new_context(n_ctx, n_threads)
        self._memory = self._api.llama_get_memory(self._context)
        self._batch = self._api.llama_batch_init(N_BATCH, 0, 1)

    def describe(self) -> Ready:
        """What the model says of itself."""
        return self._model.describe()

    def measure(self, prompt_ids: Sequence[int], n_decode: int) -> Timings:
        """Prefills exactly these tokens in an empty context, then takes n_decode greedy steps."""
        self._api.llama_memory_clear(self._memory, True)
        began = time.perf_counter()
        for start in range(0, len(prompt_ids), N_BATCH):
            self._decode(prompt_ids[start : start + N_BATCH], start, is_last=start + N_BATCH >= len(prompt_ids))
        token = self._model.likeliest(self._context, -1)
        prefilled = time.perf_counter()
        for step in range(n_decode):
            self._decode([token], len(prompt_ids) + step, is_last=True)
            token = self._model.likeliest(self._context, -1)
        return Timings(prefilled - began, time.perf_counter() - prefilled)

    def _decode(self, token_ids: Sequence[int], position: int, *, is_last: bool) -> None:
        batch = self._batch
        batch.n_tokens = len(token_ids)
        for index, token in enumerate(token_ids):
            batch.token[index] = token
            batch.pos[index] = position + index
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = 0
            batch.logits[index] = 0
        batch.logits[len(token_ids) - 1] = int(is_last)
        status = self._api.llama_decode(self._context, batch)
        if status:
            raise RuntimeError(f"llama_decode returned {status} for {len(token_ids)} tokens at position {position}")


def main(arguments: Sequence[str]) -> int:
    """Serves one model until stdin ends."""
    model, n_threads, n_ctx, *rest = arguments
    answers = private_stdout()
    return serve(
        lambda: LlamaCppEngine(model, int(n_threads), int(n_ctx), is_mapped="mapped" in rest), sys.stdin, answers
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
