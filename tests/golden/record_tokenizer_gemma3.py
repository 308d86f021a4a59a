"""Re-records llama.cpp's token ids of the texts in data/tokenizer_gemma3.json.

    python tests/golden/record_tokenizer_gemma3.py gemma-3-270m-q4_k_m.gguf > recorded.json

Needs `llama-cpp-python`. `ids` are the tokens of the text as ordinary text; `ids_special`, where it differs, with
control tokens read.
"""

# ruff: noqa: T201 - a program whose output is its result.

from __future__ import annotations

import json
import sys
from pathlib import Path

DATA = Path(__file__).parent / "data" / "tokenizer_gemma3.json"


def main(model: str) -> None:
    """Prints the whole file."""
    from llama_cpp import Llama

    llama = Llama(model, vocab_only=True, verbose=False)
    rows = []
    for case in json.loads(DATA.read_text(encoding="utf-8")):
        row = {"text": case["text"], "ids": llama.tokenize(case["text"].encode(), add_bos=False, special=False)}
        special = llama.tokenize(case["text"].encode(), add_bos=False, special=True)
        row |= {"ids_special": special} if special != row["ids"] else {}
        rows.append(json.dumps(row, ensure_ascii=False, separators=(",", ":")))
    print("[\n" + ",\n".join(rows) + "\n]")


if __name__ == "__main__":
    main(*sys.argv[1:])
