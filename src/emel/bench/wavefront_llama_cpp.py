"""llama.cpp as a lane of the wavefront suite, through the C API that llama-cpp-python binds.

`python -m emel.bench.wavefront_llama_cpp MODEL THREADS CONTEXT SEQUENCES`

One batch for all prompts (in micro-batches of 512), then one batch a step with a token of every sequence, as its own
batched decoding does. A context is made for each number of sequences; other settings are its defaults.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from emel.bench.protocol import Ready, private_stdout
from emel.bench.wavefront_protocol import serve_waves

if TYPE_CHECKING:
    from collections.abc import Sequence

N_BATCH = 512


class LlamaCppWaves:
    """llama.cpp behind the protocol. Raises RuntimeError when it refuses the model, a context or a batch."""

    def __init__(self, path: str, n_threads: int, n_ctx: int) -> None:
        import llama_cpp

        self._api: Any = llama_cpp
        # Kept as long as the engine: llama.cpp holds the pointer.
        self._silence = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self._silence, None)
        llama_cpp.llama_backend_init()
        parameters = llama_cpp.llama_model_default_params()
        parameters.n_gpu_layers = 0
        self._model = llama_cpp.llama_model_load_from_file(path.encode(), parameters)
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self._n_threads, self._n_ctx = n_threads, n_ctx
        self._n_vocab: int = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self._batch = llama_cpp.llama_batch_init(N_BATCH, 0, 1)
        self._context: Any = None
        self._n_sequences = 0

    def describe(self) -> Ready:
        """Name, version, the CPU features it uses and the vocabulary."""
        info: str = self._api.llama_print_system_info().decode()
        used = [part.split("=")[0].split(":")[-1].strip() for part in info.split("|") if part.strip().endswith("= 1")]
        return Ready("llama.cpp", f"llama-cpp-python {self._api.__version__}", " ".join(used), self._n_vocab)

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
        parameters = self._api.llama_context_default_params()
        parameters.n_ctx = self._n_ctx * n_sequences
        parameters.n_seq_max = n_sequences
        parameters.n_batch = parameters.n_ubatch = N_BATCH
        parameters.n_threads = parameters.n_threads_batch = self._n_threads
        self._context = self._api.llama_init_from_model(self._model, parameters)
        if not self._context:
            raise RuntimeError(f"llama.cpp cannot make a context for {n_sequences} sequences")
        self._n_sequences = n_sequences

    def _decode(
        self,
        entries: Sequence[tuple[int, int, int, bool]],
        tokens: list[int],
        times: list[list[float]],
        began: float,
    ) -> None:
        """Runs a batch of (token, position, sequence, whether logits are wanted), and takes the likeliest tokens."""
        import numpy as np

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
                logits = self._api.llama_get_logits_ith(self._context, index)
                tokens[sequence] = int(np.ctypeslib.as_array(logits, shape=(self._n_vocab,)).argmax())
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
