"""Records how far llama.cpp's embeddings are from the float64 reference, for the models of tiny_encoders.py.

    python tests/model/record_llama_cpp_embeddings.py > tests/model/data/llama_cpp_embedding_errors.json

Needs `llama-cpp-python` and `gguf`. One line for each model and type: the relative RMS error of one text's embedding,
and a digest of the tensors, so that the record of another model is never compared. As llama.cpp comes: float16 cache,
flash attention as it decides, one thread.
"""

# ruff: noqa: T201 - a program whose output is its result.

from __future__ import annotations

import json
import sys
import tempfile
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from model.reference_error import IDS, TYPES, tensor_digest, total_error
from model.tiny_encoders import ENCODER_MODELS
from model.tiny_models import N_CTX, write_tiny_model
from reference.weights import Weights

if TYPE_CHECKING:
    from numpy.typing import NDArray


def llama_cpp_embedding(path: Path) -> NDArray[np.float32]:
    """(width,) of the text, pooled as the file says; through the C API, as the Python one takes no token ids."""
    llama_cpp: Any = import_module("llama_cpp")
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    parameters = llama_cpp.llama_context_default_params()
    parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = N_CTX
    parameters.n_threads = parameters.n_threads_batch = 1
    parameters.embeddings = True
    context = llama_cpp.llama_init_from_model(model, parameters)
    batch = llama_cpp.llama_batch_init(N_CTX, 0, 1)
    batch.n_tokens = len(IDS)
    for index, token in enumerate(IDS):
        batch.token[index], batch.pos[index], batch.logits[index] = token, index, 1
        batch.n_seq_id[index], batch.seq_id[index][0] = 1, 0
    if llama_cpp.llama_encode(context, batch) != 0:
        raise RuntimeError(f"llama.cpp could not encode with {path.name}")
    width = llama_cpp.llama_model_n_embd(model)
    embedding = np.array(np.ctypeslib.as_array(llama_cpp.llama_get_embeddings_seq(context, 0), (width,)), np.float32)
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return embedding


def main() -> None:
    """Prints the whole file."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for name, make in ENCODER_MODELS.items():
            for weight_type in TYPES:
                path = Path(folder) / f"{name}-{weight_type}.gguf"
                write_tiny_model(path, make(), weight_type)
                weights = Weights(path)
                module: Any = import_module(f"reference.{weights.architecture.replace('-', '_')}")
                error = total_error(llama_cpp_embedding(path), module.embed(weights, IDS))
                entry = {"error": float(f"{error:.4g}"), "tensors": tensor_digest(path)}
                lines.append(f'  "{name}-{weight_type}": {json.dumps(entry)}')
    header = json.dumps(f"llama-cpp-python {version('llama-cpp-python')}")
    print(f'{{"recorded_with": {header}, "models": {{\n' + ",\n".join(lines) + "\n}}")


if __name__ == "__main__":
    main()
