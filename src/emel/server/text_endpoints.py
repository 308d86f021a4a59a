"""POST /tokenize and /detokenize, as llama.cpp's server has them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response

from emel.server.body import read_shape
from emel.server.errors import checked_tokens
from emel.server.holding import ready_model
from emel.server.shapes import DetokenizeRequest, TokenizeRequest

if TYPE_CHECKING:
    from starlette.requests import Request

    from emel.engine.model import Model
    from emel.text.tokenizer import Tokenizer


_PART = 4096
"""Tokens that are made JSON at once: nothing else of this process runs meanwhile."""
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


async def tokenize(request: Request) -> Response:
    """Text to ids, with their texts if they are wanted."""
    shape = await read_shape(request, TokenizeRequest)
    model = (await ready_model(request, shape.model)).model
    return await asyncio.to_thread(_tokens, model, shape)


async def detokenize(request: Request) -> Response:
    """Ids to text."""
    shape = await read_shape(request, DetokenizeRequest)
    model = (await ready_model(request, shape.model)).model
    return JSONResponse({"content": await asyncio.to_thread(_text, model, shape.tokens)})


def _tokens(model: Model, shape: TokenizeRequest) -> Response:
    """Made whole in a thread: those of a long text are millions."""
    ids = model.tokenize(shape.content, add_special=shape.add_special, parse_special=shape.parse_special)
    tokens: list[Any] = [_piece(model.tokenizer, each) for each in ids] if shape.with_pieces else ids
    parts = [_encode(tokens[start : start + _PART])[1:-1] for start in range(0, len(tokens), _PART)]
    return Response(f'{{"tokens":[{",".join(parts)}]}}', media_type="application/json")


def _text(model: Model, tokens: list[int]) -> str:
    return model.detokenize(checked_tokens(tokens, model.n_vocab, "tokens"))


def _piece(tokenizer: Tokenizer, token: int) -> dict[str, Any]:
    data = tokenizer.token_bytes(token)
    try:
        return {"id": token, "piece": data.decode()}
    except UnicodeDecodeError:
        return {"id": token, "piece": list(data)}
