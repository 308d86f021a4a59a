"""Records how far llama.cpp's logits are from the float64 reference, for the models of tiny_models.py.

    python tests/model/record_llama_cpp.py > tests/model/data/llama_cpp_errors.json

Needs `llama-cpp-python` and `gguf`. One line for each model and type: the relative RMS error over all positions, the
share of positions whose best token is the reference's, and a digest of the tensors, so that the record of another model
is never compared. As llama.cpp comes: float16 cache, flash attention as it decides, one thread. NOT_THE_SAME are
models that it takes for others than they are.
"""

# ruff: noqa: T201 - a program whose output is its result.

from __future__ import annotations

import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from model.every_model import EVERY_MODEL
from model.reference_error import IDS, TYPES, reference_of, tensor_digest, total_error
from model.tiny_models import write_tiny_model
from reference.weights import Weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

NOT_THE_SAME = {
    "gpt-oss": "llama.cpp rounds the ends of YaRN's ramp, which the models' own code does not",
    "llama-layers": "llama.cpp takes the heads of a llama's first layer for those of all",
    "llama-window": "llama.cpp reads no sliding window in files of llama",
}


def llama_cpp_logits(path: Path) -> NDArray[np.float32]:
    """(n_tokens, n_vocab) of every position."""
    from llama_cpp import Llama

    engine = Llama(str(path), n_ctx=256, n_batch=64, n_threads=1, n_threads_batch=1, logits_all=True, verbose=False)
    try:
        engine.eval(IDS)
        return np.array(engine.scores[: len(IDS)], np.float32)
    finally:
        engine.close()


def main() -> None:
    """Prints the whole file."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for name in (name for name in EVERY_MODEL if name not in NOT_THE_SAME):
            for weight_type in TYPES:
                path = Path(folder) / f"{name}-{weight_type}.gguf"
                write_tiny_model(path, EVERY_MODEL[name](), weight_type)
                expected, logits = reference_of(Weights(path), IDS), llama_cpp_logits(path)
                entry = {
                    "error": float(f"{total_error(logits, expected):.4g}"),
                    "top_1": float(np.mean(logits.argmax(axis=-1) == expected.argmax(axis=-1))),
                    "tensors": tensor_digest(path),
                }
                lines.append(f'  "{name}-{weight_type}": {json.dumps(entry)}')
    header = json.dumps(f"llama-cpp-python {version('llama-cpp-python')}")
    print(f'{{"recorded_with": {header}, "models": {{\n' + ",\n".join(lines) + "\n}}")


if __name__ == "__main__":
    main()
