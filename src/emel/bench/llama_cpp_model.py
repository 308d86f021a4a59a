"""A model in llama.cpp, through the C API that llama-cpp-python binds: what all its lanes open and say of it."""

from __future__ import annotations

from typing import Any

from emel.bench.machine import counted
from emel.bench.protocol import Ready

N_BATCH = 512
"""Tokens of its batches and micro-batches."""


class LlamaCppModel:
    """A loaded model; `api` is the binding. Raises RuntimeError when llama.cpp refuses a model or a context.

    Its defaults hold (memory mapping, weight repacking, flash attention as it decides, float16 KV cache). `is_mapped`:
    no weight repacking.
    """

    def __init__(self, path: str, *, is_mapped: bool = False) -> None:
        import llama_cpp

        self.api: Any = llama_cpp
        # Kept as long as the model: llama.cpp holds the pointer.
        self._silence = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self._silence, None)
        llama_cpp.llama_backend_init()
        parameters = llama_cpp.llama_model_default_params()
        parameters.n_gpu_layers = 0
        parameters.use_extra_bufts = not is_mapped
        self._model = llama_cpp.llama_model_load_from_file(path.encode(), parameters)
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self.n_vocab: int = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))

    def describe(self) -> Ready:
        """Name, version, the CPU features it uses and the vocabulary."""
        info: str = self.api.llama_print_system_info().decode()
        used = [part.split("=")[0].split(":")[-1].strip() for part in info.split("|") if part.strip().endswith("= 1")]
        return Ready("llama.cpp", f"llama-cpp-python {self.api.__version__}", " ".join(used), self.n_vocab)

    def new_context(self, n_ctx: int, n_threads: int, n_sequences: int = 1) -> Any:
        """A context of n_ctx tokens for each of n_sequences, with as many threads for prompts as for text."""
        parameters = self.api.llama_context_default_params()
        parameters.n_ctx = n_ctx * n_sequences
        parameters.n_seq_max = n_sequences
        parameters.n_batch = parameters.n_ubatch = N_BATCH
        parameters.n_threads = parameters.n_threads_batch = n_threads
        context = self.api.llama_init_from_model(self._model, parameters)
        if not context:
            each = f"{n_ctx} tokens for {n_sequences} sequences with {counted(n_threads, 'thread')}"
            raise RuntimeError(f"llama.cpp cannot make a context of {each}")
        return context

    def likeliest(self, context: Any, index: int) -> int:
        """The token of the highest logit at a place of the last batch; -1 is the last place."""
        import numpy as np

        logits = self.api.llama_get_logits_ith(context, index)
        return int(np.ctypeslib.as_array(logits, shape=(self.n_vocab,)).argmax())
