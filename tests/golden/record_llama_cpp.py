"""Records llama.cpp's continuations of five raw prompts and five chats, and the float64 reference's margins there.

    python tests/golden/record_llama_cpp.py MODEL.gguf > tests/golden/data/greedy_smollm2.json

Needs `xllamacpp` (llama.cpp in a wheel) and `gguf`. data/README.md says what the fields mean.
"""

# ruff: noqa: T201 - a program whose output is its result.

from __future__ import annotations

import hashlib
import json
import sys
import urllib.request
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from reference.llama import judge_continuation
from reference.weights import Weights

N_TOKENS = 32
RAW_PROMPTS = {
    "capital": "The capital of France is",
    "lighthouse": "Once upon a time there was a small robot who lived in a lighthouse. Every evening",
    "moon": "In 1969, the first man to walk on the Moon was",
    "planet": "The largest planet in the solar system is",
    "week": "The seven days of the week are Monday, Tuesday,",
}
CHAT_PROMPTS = {
    "capital": "What is the capital of France?",
    "gravity": "What is gravity?",
    "photosynthesis": "What is photosynthesis?",
    "soup": "How do I make a simple tomato soup?",
    "year": "How many days are in a year?",
}


class LlamaCpp:
    """A llama.cpp server inside this process, spoken to over its loopback port."""

    def __init__(self, path: Path) -> None:
        import xllamacpp

        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(path)
        parameters.n_ctx, parameters.n_parallel, parameters.n_gpu_layers = 512, 1, 0
        parameters.warmup, parameters.verbosity = False, -1
        self._server = xllamacpp.Server(parameters)

    def post(self, route: str, **fields: object) -> dict[str, Any]:
        """The decoded answer of one route."""
        request = urllib.request.Request(
            self._server.listening_address + route, json.dumps(fields).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as response:
            answer: dict[str, Any] = json.load(response)
            return answer


def record(engine: LlamaCpp, weights: Weights, name: str, form: str, prompt: str) -> dict[str, object]:
    """One entry of the file: the prompt, llama.cpp's continuation, and the reference's view of each token."""
    prompt_ids = engine.post("/tokenize", content=prompt, add_special=True, parse_special=True)["tokens"]
    answer = engine.post(
        "/completion", prompt=prompt_ids, n_predict=N_TOKENS, temperature=0, return_tokens=True, cache_prompt=False
    )
    token_ids = answer["tokens"]
    steps = judge_continuation(weights, prompt_ids, token_ids)
    return {
        "name": name,
        "form": form,
        "prompt": prompt,
        "prompt_ids": prompt_ids,
        "text": answer["content"],
        "token_ids": token_ids,
        "reference_token_ids": [step.token for step in steps],
        "reference_margins": [round(step.margin, 4) for step in steps],
    }


def main(model: str) -> None:
    """Prints the whole file."""
    path = Path(model)
    engine, weights = LlamaCpp(path), Weights(path)
    entries = [record(engine, weights, name, "raw", prompt) for name, prompt in RAW_PROMPTS.items()]
    for name, question in CHAT_PROMPTS.items():
        messages = [{"role": "user", "content": question}]
        prompt = engine.post("/apply-template", messages=messages)["prompt"]
        entries.append({"messages": messages, **record(engine, weights, name, "chat", prompt)})
    header = {
        "model_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "recorded_with": f"xllamacpp {version('xllamacpp')}",
    }
    lines = ",\n".join("  " + json.dumps(entry) for entry in entries)
    print(f'{json.dumps(header)[:-1]}, "continuations": [\n{lines}\n]}}')


if __name__ == "__main__":
    main(*sys.argv[1:])
