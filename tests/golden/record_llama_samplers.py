"""Records what llama.cpp's own samplers leave of random logits: tests/golden/data/llama_samplers.json.

    python tests/golden/record_llama_samplers.py MODEL.gguf > tests/golden/data/llama_samplers.json

Needs `llama-cpp-python`; the model is read for its vocabulary alone, which DRY's breakers are looked up in.
"""

# ruff: noqa: T201 - a program whose output is its result.

from __future__ import annotations

import ctypes
import json
import math
import random
import sys
from importlib.metadata import version
from typing import Any

import llama_cpp

N_VOCAB = 256  # of the model's tokens: among them the letters, 198 is the newline
SCALES = (1.5, 3.5)  # of the logits
LEAST = 1e-5  # of the probabilities that are written
HISTORY = [7, 8, 9, 10, 7, 8, 9, 198, 7, 8, 9, 10, 40, 41, 7, 8, 9]
CASES: list[tuple[str, dict[str, Any]]] = [
    ("top_k", {"top_k": 9}),
    ("top_p", {"top_p": 0.8}),
    ("top_p_kept", {"top_p": 0.2, "min_keep": 7}),
    ("min_p", {"min_p": 0.1}),
    ("typical_p", {"typical_p": 0.6}),
    ("typical_p_wide", {"typical_p": 0.95}),
    ("top_n_sigma", {"top_n_sigma": 1.5}),
    ("temperature", {"temperature": 0.7}),
    ("dynamic", {"temperature": 1.0, "dynatemp_range": 0.6, "dynatemp_exponent": 1.5}),
    ("xtc", {"xtc_probability": 1.0, "xtc_threshold": 0.03}),
    ("xtc_kept", {"xtc_probability": 1.0, "xtc_threshold": 0.03, "min_keep": 256}),
    ("penalties", {"repeat_penalty": 1.3, "presence_penalty": 0.3, "frequency_penalty": 0.2, "repeat_last_n": 12}),
    ("dry", {"dry_multiplier": 0.8, "dry_penalty_last_n": 64}),
    ("dry_short", {"dry_multiplier": 1.5, "dry_base": 1.3, "dry_allowed_length": 1, "dry_penalty_last_n": 9}),
    ("dry_breakers", {"dry_multiplier": 0.8, "dry_penalty_last_n": 64, "dry_sequence_breakers": ["\n"]}),
    (
        "chain",
        {"repeat_penalty": 1.1, "repeat_last_n": 64, "top_k": 40, "top_p": 0.95, "min_p": 0.02, "temperature": 0.8},
    ),
]


def samplers(case: dict[str, Any], vocab: Any) -> list[Any]:
    """llama.cpp's, in its usual order, for the fields that are given."""
    keep = case.get("min_keep", 0)
    made = []
    penalties = {"repeat_last_n": 64, "repeat_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0}
    if case.keys() & penalties.keys():
        values = [case.get(name, off) for name, off in penalties.items()]
        made.append(llama_cpp.llama_sampler_init_penalties(N_VOCAB, *values))
    if "dry_multiplier" in case:
        texts = [each.encode() for each in case.get("dry_sequence_breakers", [])]
        breakers = (ctypes.c_char_p * len(texts))(*texts)
        numbers = (case["dry_multiplier"], case.get("dry_base", 1.75), case.get("dry_allowed_length", 2))
        made.append(llama_cpp.llama_sampler_init_dry(vocab, *numbers, case["dry_penalty_last_n"], breakers, len(texts)))
    if "top_n_sigma" in case:
        made.append(llama_cpp.llama_sampler_init_top_n_sigma(case["top_n_sigma"]))
    if "top_k" in case:
        made.append(llama_cpp.llama_sampler_init_top_k(case["top_k"]))
    if "typical_p" in case:
        made.append(llama_cpp.llama_sampler_init_typical(case["typical_p"], keep))
    if "top_p" in case:
        made.append(llama_cpp.llama_sampler_init_top_p(case["top_p"], keep))
    if "min_p" in case:
        made.append(llama_cpp.llama_sampler_init_min_p(case["min_p"], keep))
    if "xtc_probability" in case:
        made.append(llama_cpp.llama_sampler_init_xtc(case["xtc_probability"], case["xtc_threshold"], keep, 1))
    if "temperature" in case:
        dynamic = (case.get("dynatemp_range", 0.0), case.get("dynatemp_exponent", 1.0))
        made.append(llama_cpp.llama_sampler_init_temp_ext(case["temperature"], *dynamic))
    return made


def kept(case: dict[str, Any], logits: list[float], vocab: Any) -> dict[str, float]:
    """Token -> its probability after the samplers."""
    data = (llama_cpp.llama_token_data * N_VOCAB)(*((token, logits[token], 0.0) for token in range(N_VOCAB)))
    candidates = llama_cpp.llama_token_data_array(data=data, size=N_VOCAB, selected=-1, sorted=False)
    for sampler in samplers(case, vocab):
        for token in HISTORY:
            llama_cpp.llama_sampler_accept(sampler, token)
        llama_cpp.llama_sampler_apply(sampler, ctypes.byref(candidates))
        llama_cpp.llama_sampler_free(sampler)
    left = {candidates.data[i].id: candidates.data[i].logit for i in range(candidates.size)}
    largest = max(left.values())
    weights = {token: math.exp(logit - largest) for token, logit in left.items()}
    total = sum(weights.values())
    return {str(token): round(weight / total, 8) for token, weight in sorted(weights.items()) if weight / total > LEAST}


def main() -> None:
    llama_cpp.llama_backend_init()
    parameters = llama_cpp.llama_model_default_params()
    parameters.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(sys.argv[1].encode(), parameters)
    vocab = llama_cpp.llama_model_get_vocab(model)
    numbers = random.Random(11)
    rows = [
        [round(numbers.gauss(3.0 if token in HISTORY else 0.0, scale), 3) for token in range(N_VOCAB)]
        for scale in SCALES
    ]
    cases = [
        {"name": name, "row": row, "parameters": case, "probabilities": kept(case, logits, vocab)}
        for name, case in CASES
        for row, logits in enumerate(rows)
    ]
    recorded_with = f"llama-cpp-python {version('llama-cpp-python')}"
    print(json.dumps({"recorded_with": recorded_with, "history": HISTORY, "rows": rows, "cases": cases}))


if __name__ == "__main__":
    main()
