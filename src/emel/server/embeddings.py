"""POST /v1/embeddings (https://platform.openai.com/docs/api-reference/embeddings)."""

from __future__ import annotations

import asyncio
import base64
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from emel.engine.embedding import LEAST_TOKENS, MAX_TEXTS
from emel.server.body import read_shape
from emel.server.connection import unless_gone
from emel.server.errors import ApiError, checked_tokens, invalid, timed_out, too_long
from emel.server.holding import ready_model
from emel.server.shapes import EmbeddingsRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Executor

    import numpy as np
    from numpy.typing import NDArray
    from starlette.requests import Request
    from starlette.responses import Response

    from emel.engine.model import Model
    from emel.server.settings import Settings

MAX_INPUTS = 2048
"""As OpenAI has it; the response to a body of short texts could be a hundred times as long."""


async def create_embeddings(request: Request) -> Response:
    """The endpoint. Each text's embedding is the same whatever else the list has."""
    shape = await read_shape(request, EmbeddingsRequest)
    served = await ready_model(request, shape.model)
    vectors, n_tokens = await _in_turn(request, served.model, shape)
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


async def _in_turn(request: Request, model: Model, shape: EmbeddingsRequest) -> tuple[list[NDArray[np.float32]], int]:
    """Embeddings, each (width,) float32, and the number of tokens; ApiError 429 when too many wait, ClientGone."""
    state = request.app.state
    settings: Settings = state.settings
    if state.n_embedding > settings.max_waiting:
        raise ApiError(429, f"{state.n_embedding} requests for embeddings wait already", headers={"retry-after": "1"})
    state.n_embedding += 1
    try:
        async with asyncio.timeout(settings.request_timeout):
            return await unless_gone(request, _embedded(state.embedding, model, shape))
    except TimeoutError as error:
        raise timed_out(settings.request_timeout) from error
    finally:
        state.n_embedding -= 1


async def _embedded(
    executor: Executor, model: Model, shape: EmbeddingsRequest
) -> tuple[list[NDArray[np.float32]], int]:
    """What is cancelled ends with the batch that is computed. One batch at a time: others have their turns between."""
    in_thread = asyncio.get_running_loop().run_in_executor
    texts = await in_thread(executor, _token_ids, model, shape)
    vectors: list[NDArray[np.float32]] = []
    for batch in _batches(texts, max(model.n_ctx, LEAST_TOKENS)):
        vectors.extend(await in_thread(executor, partial(model.embed, texts[batch], pooling=shape.pooling)))
        if shape.dimensions is not None and shape.dimensions != len(vectors[0]):
            raise invalid(
                f"dimensions is {shape.dimensions}: this model has {len(vectors[0])} and no others", "dimensions"
            )
    return vectors, sum(map(len, texts))


def _batches(texts: Sequence[Sequence[int]], most_tokens: int) -> Iterator[slice]:
    """Consecutive texts that the engine computes together."""
    begin = n_tokens = 0
    for index, ids in enumerate(texts):
        if index - begin == MAX_TEXTS or (n_tokens and n_tokens + len(ids) > most_tokens):
            yield slice(begin, index)
            begin, n_tokens = index, 0
        n_tokens += len(ids)
    yield slice(begin, len(texts))


def _token_ids(model: Model, shape: EmbeddingsRequest) -> list[list[int]]:
    """Of each text; ApiError 400 for those that cannot be embedded."""
    given: Any = shape.input
    if not given:
        raise invalid("input is empty: give a text, a list of texts, or token ids", "input")
    many = given if isinstance(given, list) and isinstance(given[0], str | list) else [given]
    if len(many) > MAX_INPUTS:
        raise invalid(f"input has {len(many)} texts: at most {MAX_INPUTS} are taken at a time", "input")
    texts = [
        model.tokenize(each) if isinstance(each, str) else checked_tokens(each, model.n_vocab, "input") for each in many
    ]
    for index, ids in enumerate(texts):
        if not ids:
            raise invalid(f"input[{index}] has no tokens: give at least one character", "input")
        if len(ids) > model.n_ctx:
            raise too_long(len(ids), model.n_ctx, model.n_ctx_train, "input")
    return texts


def _encoded(vector: NDArray[np.float32]) -> str:
    """Base64 of little-endian float32, as OpenAI's clients ask for."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
