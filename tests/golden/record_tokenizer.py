"""Re-records llama.cpp's token ids of the texts in data/tokenizer_smollm2.json.

    python tests/golden/record_tokenizer.py MODEL.gguf > recorded.json

Needs `xllamacpp` (llama.cpp in a wheel). `ids` are the tokens of the text as ordinary text; `ids_special`, where it
differs, with control tokens read. Bytes the vocabulary lacks (U+0004 and others) are left out by both. `as` has, for
texts of under 160 characters and where they differ, the ids of the same vocabulary in files that name another
pre-tokenizer; they are kept as they are here.
"""

# ruff: noqa: T201 - a program whose output is its result.

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path

DATA = Path(__file__).parent / "data" / "tokenizer_smollm2.json"


def main(model: str) -> None:
    """Prints the whole file."""
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.n_ctx, parameters.warmup = 512, False
    server = xllamacpp.Server(parameters)

    def ids_of(text: str, *, parse_special: bool) -> list[int]:
        body = json.dumps({"content": text, "add_special": False, "parse_special": parse_special}).encode()
        request = urllib.request.Request(
            f"{server.listening_address}/tokenize", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as response:
            tokens: list[int] = json.load(response)["tokens"]
        return tokens

    rows = []
    for case in json.loads(DATA.read_text(encoding="utf-8")):
        row = {"text": case["text"], "ids": ids_of(case["text"], parse_special=False)}
        special = ids_of(case["text"], parse_special=True)
        row |= {"ids_special": special} if special != row["ids"] else {}
        row |= {"as": case["as"]} if "as" in case else {}
        rows.append(json.dumps(row, ensure_ascii=False, separators=(",", ":")))
    print("[\n" + ",\n".join(rows) + "\n]")


if __name__ == "__main__":
    main(*sys.argv[1:])
