"""llama.cpp as a benchmark lane, through the C API that llama-cpp-python binds.

`python -m emel.bench.lane_llama_cpp MODEL THREADS CONTEXT [mapped]`

Its own defaults (memory mapping, weight repacking, flash attention as it decides, float16 KV cache) with batches and
micro-batches of 512; logits for the last token of a prompt alone; tokens chosen by argmax outside llama.cpp's samplers.
`mapped`: no weight repacking, so that weights stay in the page cache, where a limit of memory can push them out.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from emel.bench.protocol import Ready, Timings, private_stdout, serve

if TYPE_CHECKING:
    from collections.abc import Sequence

N_BATCH = 512


class LlamaCppEngine:
    """llama.cpp behind the protocol. Raises RuntimeError when it refuses the model, the context or a batch."""

    def __init__(self, path: str, n_threads: int, n_ctx: int, *, is_mapped: bool = False) -> None:
        import llama_cpp

        self._api: Any = llama_cpp
        # Kept as long as the engine: llama.cpp holds the pointer.
        self._silence = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self._silence, None)
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(path.encode(), self._model_parameters(is_mapped))
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self._context = llama_cpp.llama_init_from_model(self._model, self._context_parameters(n_threads, n_ctx))
        if not self._context:
            raise RuntimeError(f"llama.cpp cannot make a context of {n_ctx} tokens with {n_threads} threads")
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._n_vocab: int = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self._batch = llama_cpp.llama_batch_init(N_BATCH, 0, 1)

    def _model_parameters(self, is_mapped: bool) -> Any:
        parameters = self._api.llama_model_default_params()
        parameters.n_gpu_layers = 0
        parameters.use_extra_bufts = not is_mapped
        return parameters

    def _context_parameters(self, n_threads: int, n_ctx: int) -> Any:
        parameters = self._api.llama_context_default_params()
        parameters.n_ctx = n_ctx
        parameters.n_batch = parameters.n_ubatch = N_BATCH
        parameters.n_threads = parameters.n_threads_batch = n_threads
        return parameters

    def describe(self) -> Ready:
        """Name, versions, the CPU features it uses and the vocabulary."""
        info: str = self._api.llama_print_system_info().decode()
        used = [part.split("=")[0].split(":")[-1].strip() for part in info.split("|") if part.strip().endswith("= 1")]
        return Ready("llama.cpp", f"llama-cpp-python {self._api.__version__}", " ".join(used), self._n_vocab)

    def measure(self, prompt_ids: Sequence[int], n_decode: int) -> Timings:
        """Prefills exactly these tokens in an empty context, then takes n_decode greedy steps."""
        self._api.llama_memory_clear(self._memory, True)
        began = time.perf_counter()
        for start in range(0, len(prompt_ids), N_BATCH):
            self._decode(prompt_ids[start : start + N_BATCH], start, is_last=start + N_BATCH >= len(prompt_ids))
        token = self._argmax()
        prefilled = time.perf_counter()
        for step in range(n_decode):
            self._decode([token], len(prompt_ids) + step, is_last=True)
            token = self._argmax()
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

    def _argmax(self) -> int:
        import numpy as np

        logits = self._api.llama_get_logits_ith(self._context, -1)
        return int(np.ctypeslib.as_array(logits, shape=(self._n_vocab,)).argmax())


def main(arguments: Sequence[str]) -> int:
    """Serves one model until stdin ends."""
    model, n_threads, n_ctx, *rest = arguments
    answers = private_stdout()
    return serve(
        lambda: LlamaCppEngine(model, int(n_threads), int(n_ctx), is_mapped="mapped" in rest), sys.stdin, answers
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
