"""Saves the float64 reference's logits of a text, for `emel accuracy --base-logits`.

PYTHONPATH=src:tests python tests/golden/record_reference_logits.py MODEL.gguf TEXT OUT [N_CHUNKS]
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import emel
from emel.accuracy.chunks import DEFAULT_CONTEXT, chunks_of_text
from emel.accuracy.logits_file import LogitsWriter
from reference.weights import Weights


def main(model_path: str, text: str, out: str, most: str | None = None) -> None:
    """Writes the file."""
    with emel.load(model_path, n_ctx=DEFAULT_CONTEXT, n_lanes=1) as model:
        chunks, n_vocab = (
            chunks_of_text(model, Path(text).read_bytes(), None if most is None else int(most)),
            model.n_vocab,
        )
    weights = Weights(model_path)
    reference = importlib.import_module(f"reference.{weights.architecture.replace('-', '_')}")
    with LogitsWriter(out, chunks, n_vocab) as writer:
        for index, chunk in enumerate(chunks.ids):
            writer.add(reference.forward(weights, list(chunk))[chunks.first : -1])
            sys.stderr.write(f"chunk {index + 1} of {len(chunks.ids)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
