"""The ASGI application: which path is which endpoint, and what every request goes through."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import TYPE_CHECKING

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.routing import Route

from emel.engine.grammar_check import CHECKER
from emel.errors import EmelError
from emel.server import (
    chat,
    completions,
    embeddings,
    live,
    messages,
    metrics,
    model_endpoints,
    native,
    openapi,
    page_files,
    responses,
    slots,
    text_endpoints,
)
from emel.server.access_log import AccessLog
from emel.server.connection import ClientGone
from emel.server.ending import Ending
from emel.server.errors import ApiError, of_exception
from emel.server.gate import Gate
from emel.server.holding import Holding

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.responses import Response

    from emel.server.served import ServedModels
    from emel.server.settings import Settings

_log = logging.getLogger("emel.server")


def create_app(models: ServedModels, settings: Settings) -> Starlette:
    """The application. The models are loaded when it starts, and unloaded when it ends."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.compiling = ThreadPoolExecutor(4, "compiling")
        app.state.embedding = ThreadPoolExecutor(4, "embedding")
        models.start()
        unloading = asyncio.ensure_future(_unload_idle(models, settings.idle_unload_seconds))
        try:
            yield
        finally:
            unloading.cancel()
            await models.close()
            for executor in (app.state.compiling, app.state.embedding):
                executor.shutdown(wait=False, cancel_futures=True)
            await asyncio.to_thread(CHECKER.close)

    middleware = [
        Middleware(AccessLog),
        Middleware(Ending),
        Middleware(Holding),
        Middleware(Gate, settings=settings),
    ]
    if settings.cors_origins:
        origins = settings.cors_origins
        cors = Middleware(CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"])
        middleware.insert(3, cors)
    app = Starlette(
        routes=_routes(),
        lifespan=lifespan,
        middleware=middleware,
        exception_handlers={
            **dict.fromkeys((ApiError, EmelError, ValidationError, TimeoutError, MemoryError), _on_error),
            **dict.fromkeys((ClientGone, ClientDisconnect), _on_client_gone),
            HTTPException: _on_http,
            Exception: _on_error,
        },
    )
    app.state.models, app.state.settings = models, settings
    app.state.is_ending = False
    app.state.n_embedding = 0
    app.state.warned = set()
    app.state.metrics = metrics.Metrics(models)
    return app


def _routes() -> list[Route]:
    post, get = ["POST"], ["GET"]
    return [
        Route("/v1/chat/completions", chat.create_chat_completion, methods=post),
        Route("/chat/completions", chat.create_chat_completion, methods=post),
        Route("/v1/completions", completions.create_completion, methods=post),
        Route("/completions", completions.create_completion, methods=post),
        Route("/completion", native.create_native_completion, methods=post),
        Route("/v1/responses", responses.create_response, methods=post),
        Route("/v1/responses/input_tokens", responses.count_input_tokens, methods=post),
        Route("/v1/messages", messages.create_message, methods=post),
        Route("/v1/messages/count_tokens", messages.count_tokens, methods=post),
        Route("/v1/embeddings", embeddings.create_embeddings, methods=post),
        Route("/embeddings", embeddings.create_embeddings, methods=post),
        Route("/metrics", metrics.get_metrics, methods=get),
        Route("/v1/models", model_endpoints.list_models, methods=get),
        Route("/models", model_endpoints.list_models, methods=get),
        Route("/models/load", model_endpoints.load_model, methods=post),
        Route("/models/unload", model_endpoints.unload_model, methods=post),
        Route("/v1/models/{name:path}", model_endpoints.get_model, methods=get),
        Route("/", page_files.get_page, methods=get),
        Route("/page/{name}", page_files.get_page_file, methods=get),
        Route("/live", live.watch_waves, methods=get),
        Route("/trace", live.watch_transitions, methods=get),
        Route("/machines", live.get_machines, methods=get),
        Route("/openapi.json", openapi.get_openapi, methods=get),
        Route("/health", model_endpoints.health, methods=get),
        Route("/v1/health", model_endpoints.health, methods=get),
        Route("/props", model_endpoints.props, methods=get),
        Route("/slots", slots.get_slots, methods=get),
        Route("/tokenize", text_endpoints.tokenize, methods=post),
        Route("/detokenize", text_endpoints.detokenize, methods=post),
        Route("/apply-template", chat.apply_template, methods=post),
    ]


async def _on_error(request: Request, error: Exception) -> Response:
    return of_exception(error).response(request.scope)


async def _on_client_gone(_request: Request, _error: Exception) -> Response:
    return JSONResponse({}, 499)  # nobody reads it


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{error.detail}: {request.method} {request.url.path!r:.100}"
    if error.status_code == HTTPStatus.NOT_FOUND:
        message += f"; {_whereabouts(request.url.path)}"
    return ApiError(error.status_code, message, headers=dict(error.headers or {})).response(request.scope)


def _whereabouts(path: str) -> str:
    """What to ask for instead of a path that is not there."""
    if path.startswith("/v1/v1/"):
        return "the client adds /v1 by itself, so leave it out of the base URL"
    if path.startswith("/api/"):
        return "ollama's protocol is not spoken here; OpenAI's is, at /v1"
    return "/openapi.json lists the endpoints"


async def _unload_idle(models: ServedModels, seconds: float | None) -> None:
    while seconds is not None:
        await asyncio.sleep(min(seconds, 1.0))
        try:
            await models.unload_idle(seconds)
        except Exception:  # of one model; the next look comes, and others are to be unloaded, too
            _log.exception("an idle model could not be unloaded")
