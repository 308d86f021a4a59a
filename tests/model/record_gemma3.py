"""Records greedy continuations of the real Gemma 3 270M: EMEL's, llama.cpp's, and what the float64 reference says.

    python tests/model/record_gemma3.py MODEL.gguf > tests/model/data/gemma3_270m_greedy.json

Needs `llama-cpp-python`, `gguf` and three gigabytes of memory. `reference_token_ids` are the reference's own best
tokens along EMEL's continuation, `reference_margins` how far each leads the second. llama.cpp's continuation is for the
record: it leaves the reference's where the margin is below its error.
"""

# ruff: noqa: T201 - a program whose output is its result.

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from model.conformance import Runner
from model.reference_error import reference_of
from reference.weights import Weights

N_TOKENS = 32
PROMPTS = (
    "The capital of France is",
    "Once upon a time there was a small robot who lived in a lighthouse. Every evening",
    "In 1969, the first man to walk on the Moon was",
    "The seven days of the week are Monday, Tuesday,",
    "def fibonacci(n):\n    ",
)


def llama_cpp_continuations(path: Path) -> list[tuple[list[int], list[int]]]:
    """Token ids of each prompt, and of its greedy continuation."""
    from llama_cpp import Llama

    engine = Llama(str(path), n_ctx=256, n_batch=64, n_threads=2, logits_all=True, verbose=False)
    found = []
    for prompt in PROMPTS:
        ids = [int(token) for token in engine.tokenize(prompt.encode(), add_bos=True)]
        engine.reset()
        engine.eval(ids)
        answer: list[int] = []
        while len(answer) < N_TOKENS:
            answer.append(int(np.argmax(engine.scores[engine.n_tokens - 1])))
            engine.eval(answer[-1:])
        found.append((ids, answer))
    engine.close()
    return found


def main(model: str) -> None:
    """Prints the whole file."""
    path = Path(model)
    weights, lines = Weights(path), []
    with Runner(path) as runner:
        for prompt, (ids, llama_cpp) in zip(PROMPTS, llama_cpp_continuations(path), strict=True):
            answer = runner.greedy(ids, N_TOKENS)
            rows = reference_of(weights, [*ids, *answer[:-1]])[len(ids) - 1 :]
            best = np.sort(np.partition(rows, -2, axis=-1)[:, -2:], axis=-1)
            entry = {
                "prompt": prompt,
                "prompt_ids": ids,
                "reference_token_ids": rows.argmax(axis=-1).tolist(),
                "reference_margins": [round(float(margin), 4) for margin in best[:, 1] - best[:, 0]],
                "llama_cpp_token_ids": llama_cpp,
            }
            lines.append("  " + json.dumps(entry))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    print(f'{{"model_sha256": "{digest}", "continuations": [\n' + ",\n".join(lines) + "\n]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
