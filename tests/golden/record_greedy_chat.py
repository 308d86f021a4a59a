"""Records greedy answers of a real model to twenty chats, and what the float64 reference says of every token.

    python tests/golden/record_greedy_chat.py MODEL.gguf > tests/golden/data/greedy_chat_NAME.json

Needs `gguf` and three gigabytes of memory, and a second or two for each chat. `token_ids` is EMEL's answer,
`reference_token_ids` the reference's own best tokens along it, `margins` how far each leads the reference's second,
`errors` the largest difference of EMEL's logits from the reference's at each token, twice: a margin above it decides.
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

import emel
from model.reference_error import reference_of
from reference.weights import Weights

N_TOKENS = 32
PROMPTS = (
    "What is the capital of France?",
    "Name three colors of the rainbow.",
    "How many days are in a week?",
    "Write one sentence about the sea.",
    "What do bees make?",
    "Translate 'good morning' to Spanish.",
    "What is 2 + 2?",
    "Who wrote Romeo and Juliet?",
    "Give me a word that rhymes with cat.",
    "What is the largest planet?",
    "List two fruits.",
    "Is water wet? Answer yes or no.",
    "What language is spoken in Brazil?",
    "Write a Python line that prints hello.",
    "What is the opposite of hot?",
    "Tell me a fact about the Moon.",
    "Who painted the Mona Lisa?",
    "What is H2O?",
    "Suggest a name for a dog.",
    "Say goodbye in French.",
)


def main(name: str) -> None:
    """Prints the whole file."""
    path = Path(name)
    weights, lines = Weights(path), []
    with emel.load(path, n_ctx=256, n_threads=2) as model:
        for prompt in PROMPTS:
            messages = [{"role": "user", "content": prompt}]
            ids, answer = model.encode_chat(messages), model.chat(messages, max_tokens=N_TOKENS, temperature=0)
            along = [*ids, *answer.token_ids[:-1]]
            rows = reference_of(weights, along)[len(ids) - 1 :]
            errors = 2 * np.abs(model.logits(along)[len(ids) - 1 :] - rows).max(axis=-1)
            best = np.sort(np.partition(rows, -2, axis=-1)[:, -2:], axis=-1)
            entry = {
                "prompt": prompt,
                "token_ids": answer.token_ids,
                "text": answer.text,
                "reference_token_ids": rows.argmax(axis=-1).tolist(),
                "margins": [round(float(margin), 5) for margin in best[:, 1] - best[:, 0]],
                "errors": [round(float(error), 5) for error in errors],
            }
            lines.append("  " + json.dumps(entry, ensure_ascii=False))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    print(f'{{"model_sha256": "{digest}", "answers": [\n' + ",\n".join(lines) + "\n]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
