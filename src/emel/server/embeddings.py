"""POST /v1/embeddings (https://platform.openai.com/docs/api-reference/embeddings)."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from emel.server.body import read_shape
from emel.server.errors import invalid, too_long
from emel.server.holding import ready_model
from emel.server.shapes import EmbeddingsRequest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from starlette.requests import Request
    from starlette.responses import Response

    from emel.engine.model import Model

MAX_INPUTS = 2048
"""As OpenAI has it; the response to a body of short texts could be a hundred times as long."""


async def create_embeddings(request: Request) -> Response:
    """The endpoint. Each text's embedding is the same whatever else the list has."""
    shape = await read_shape(request, EmbeddingsRequest)
    served = await ready_model(request, shape.model)
    vectors, n_tokens = await asyncio.to_thread(_embed, served.model, shape)
    is_base64 = shape.encoding_format == "base64"
    data = [
        {"object": "embedding", "index": index, "embedding": _encoded(vector) if is_base64 else vector.tolist()}
        for index, vector in enumerate(vectors)
    ]
    return JSONResponse(
        {
            "object": "list",
            "data": data,
            "model": served.name,
            "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
        }
    )


def _embed(model: Model, shape: EmbeddingsRequest) -> tuple[NDArray[np.float32], int]:
    """(n, width) float32 and the number of tokens."""
    given: Any = shape.input
    if not given:
        raise invalid("input is empty: give a text, a list of texts, or token ids", "input")
    many = given if isinstance(given, list) and isinstance(given[0], str | list) else [given]
    if len(many) > MAX_INPUTS:
        raise invalid(f"input has {len(many)} texts: at most {MAX_INPUTS} are taken at a time", "input")
    texts = [model.tokenize(each) if isinstance(each, str) else each for each in many]
    for index, ids in enumerate(texts):
        if not ids:
            raise invalid(f"input[{index}] has no tokens: give at least one character", "input")
        if len(ids) > model.n_ctx:
            raise too_long(len(ids), model.n_ctx)
    vectors = model.embed(texts, pooling=shape.pooling)
    if shape.dimensions is not None and shape.dimensions != vectors.shape[1]:
        raise invalid(
            f"dimensions is {shape.dimensions}: this model has {vectors.shape[1]} and no others", "dimensions"
        )
    return vectors, sum(map(len, texts))


def _encoded(vector: NDArray[np.float32]) -> str:
    """Base64 of little-endian float32, as OpenAI's clients ask for."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
