"""Keywords of a request and of `emel.load` that people bring from other libraries, and what EMEL has for them."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from emel.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_NO_GPU = "leave it out: EMEL computes on CPUs alone"

# By EMEL's name; from llama-cpp-python, ollama, vLLM, transformers and OpenAI's and Anthropic's packages.
_OTHER_NAMES = {
    "temperature": "temp",
    "max_tokens": "n_predict num_predict max_new_tokens max_completion_tokens max_output_tokens max_length",
    "min_tokens": "min_new_tokens min_length",
    "repeat_penalty": "repetition_penalty",
    "stop": "stop_strings stop_sequences antiprompt",
    "n": "num_return_sequences best_of",
    "seed": "random_seed rng_seed",
    "logprobs": "top_logprobs n_probs",
    "ignore_eos": "ignore_eos_token",
    "choice": "choices guided_choice",
    "regex": "guided_regex pattern",
    "grammar": "guided_grammar",
    "json_schema": "guided_json schema",
}
_HINTS = {
    "stream": "model.stream(prompt), and model.chat(messages, stream=True)",
    "do_sample": "temperature=0 always takes the likeliest token",
    "response_format format": "json_schema={...} is how to ask for JSON",
    "tools tool_choice functions": "requests to the server have them (emel serve); here, tell of them in a message",
    "enable_thinking reasoning_effort": "chat_template_kwargs={...} is for variables of the template",
    "chat_template_kwargs": "model.chat has it: a raw prompt has no template",
    "n_ctx num_ctx n_threads num_thread memory kv_type": "it belongs to emel.load, for all requests",
    "n_gpu_layers num_gpu device gpu_layers": _NO_GPU,
    "echo": "prompt + completion.text is the whole",
    "system system_prompt": 'model.chat([{"role": "system", "content": ...}, ...]), or model.session(system)',
    "messages": "model.chat(messages)",
    "num_beams": "leave it out: EMEL has no beam search",
}

_OTHER_LOAD_NAMES = {
    "n_ctx": "num_ctx max_model_len context_length max_seq_len n_ctx_train",
    "n_threads": "num_thread threads n_threads_batch num_threads",
    "n_lanes": "n_seq_max max_num_seqs n_parallel parallel num_parallel",
    "kv_type": "type_k type_v cache_type_k cache_type_v kv_cache_dtype",
    "overrides": "kv_overrides rope_freq_base rope_freq_scale rope_scaling_type yarn_orig_ctx",
    "draft": "draft_model speculative_model",
    "lora": "lora_path lora_scale lora_base enable_lora",
    "chat_template": "chat_format chat_template_file",
    "memory": "max_memory use_mmap use_mlock mmap mlock",
}
_LOAD_HINTS = {
    "n_gpu_layers num_gpu gpu_layers device device_map main_gpu split_mode tensor_split offload_kqv": _NO_GPU,
    "op_offload tensor_parallel_size gpu_memory_utilization": _NO_GPU,
    "verbose log_level": "leave it out: EMEL writes nothing while it loads and computes",
    "n_batch n_ubatch batch_size max_num_batched_tokens": (
        "leave it out: EMEL chooses how much of a prompt is computed at a time, and no answer depends on it"
    ),
    "chat_handler clip_model_path mmproj": "leave it out: EMEL runs models of text alone",
    "flash_attn enable_prefix_caching": "leave it out: it is always so",
    "logits_all": "leave it out: model.logits(text) has them, and logprobs= of a request",
    "embedding embeddings pooling_type": "leave it out: model.embed(texts, pooling=...)",
    "dtype torch_dtype load_in_8bit load_in_4bit quantization": (
        "leave it out: weights are what the file has, and emel quantize makes smaller ones"
    ),
    "tokenizer trust_remote_code vocab_only": "leave it out: the file has the tokenizer, and nothing else is run",
    "filename": "the model's name says it: hf:owner/repo:FILE.gguf",
    "hf_token token": "the environment has it: HF_TOKEN",
    "cache_dir local_dir": "the environment has it: EMEL_CACHE",
}


def unknown_keyword(name: str, known: Collection[str]) -> RequestError:
    """The error for a keyword that is none of `known`: what is meant, as far as the name tells, and all there are."""
    return _unknown("sampling parameter", name, known, _OTHER_NAMES, _HINTS)


def unknown_load_keyword(name: str, known: Collection[str], of_requests: Collection[str]) -> RequestError:
    """The same for a keyword of `emel.load`; those `of_requests` are known elsewhere."""
    ours = next((ours for ours, others in _OTHER_NAMES.items() if name in others.split()), name)
    if ours in of_requests:
        return RequestError(
            f"emel.load has no {name!r}", hint=f"it belongs to requests: model.chat(messages, {ours}=...)"
        )
    return _unknown("keyword of emel.load", name, known, _OTHER_LOAD_NAMES, _LOAD_HINTS)


def _unknown(
    what: str, name: str, known: Collection[str], other_names: Mapping[str, str], hints: Mapping[str, str]
) -> RequestError:
    meant = next((ours for ours, others in other_names.items() if name in others.split()), None)
    hint = next((hint for names, hint in hints.items() if name in names.split()), None)
    if meant is None and hint is None:
        meant = next(iter(difflib.get_close_matches(name, sorted(known), n=1)), None)
    guess = f" (did you mean {meant}?)" if meant else ""
    return RequestError(f"unknown {what} {name!r}{guess}: known are {', '.join(sorted(known))}", hint=hint)
