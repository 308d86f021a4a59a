"""Keywords of a request that people bring along from other libraries, and what EMEL has for them."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from emel.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Collection

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
    "n_gpu_layers num_gpu device gpu_layers": "leave it out: EMEL computes on CPUs alone",
    "echo": "prompt + completion.text is the whole",
    "system system_prompt": 'model.chat([{"role": "system", "content": ...}, ...]), or model.session(system)',
    "messages": "model.chat(messages)",
    "num_beams": "leave it out: EMEL has no beam search",
}


def unknown_keyword(name: str, known: Collection[str]) -> RequestError:
    """The error for a keyword that is none of `known`: what is meant, as far as the name tells, and all there are."""
    meant = next((ours for ours, others in _OTHER_NAMES.items() if name in others.split()), None)
    hint = next((hint for names, hint in _HINTS.items() if name in names.split()), None)
    if meant is None and hint is None:
        meant = next(iter(difflib.get_close_matches(name, sorted(known), n=1)), None)
    guess = f" (did you mean {meant}?)" if meant else ""
    return RequestError(f"unknown sampling parameter {name!r}{guess}: known are {', '.join(sorted(known))}", hint=hint)
