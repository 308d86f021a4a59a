"""GET /health, /v1/models, /props; POST /models/load and /models/unload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from emel import __version__
from emel.server.access_log import tell_model
from emel.server.body import read_shape
from emel.server.errors import ApiError
from emel.server.served_model import LoadState
from emel.server.shapes import ModelName
from emel.text.sampling import SamplingParams

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from emel.engine.model import Model
    from emel.server.served import ServedModels
    from emel.server.served_model import ServedModel


# llama.cpp's numbers of the kinds of vocabularies (llama.h, enum llama_vocab_type).
_VOCABULARIES = {"llama": 1, "gpt2": 2, "bert": 3, "t5": 4, "rwkv": 5, "plamo2": 6}


async def health(request: Request) -> Response:
    """200 once the models are there, 503 while they are loaded: orchestrators wait for that."""
    models = request.app.state.models
    if not models.is_ready:
        return ApiError(503, "Loading model", headers={"retry-after": "1"}).response(request.scope)
    if all(each.state is LoadState.FAILED for each in models):
        return ApiError(503, f"no model could be loaded: {models.first.error}").response(request.scope)
    return JSONResponse({"status": "ok"})


async def list_models(request: Request) -> Response:
    """All models that are served."""
    models: ServedModels = request.app.state.models
    return JSONResponse({"object": "list", "data": [_described(each, models) for each in models]})


async def get_model(request: Request) -> Response:
    """One of them; 404 names those there are."""
    models: ServedModels = request.app.state.models
    return JSONResponse(_described(models.named(request.path_params["name"]), models))


async def props(request: Request) -> Response:
    """What llama.cpp's server tells of itself: defaults of sampling, lanes, template. A look loads no model."""
    models: ServedModels = request.app.state.models
    served = models.find(request.query_params.get("model"))
    model = served.model
    return JSONResponse(
        {
            "default_generation_settings": {"n_ctx": model.n_ctx, "params": SamplingParams().effective()},
            "total_slots": model.wave.snapshot().n_lanes,
            "model_alias": served.name,
            "model_path": model.path,
            "modalities": {"vision": False, "audio": False},
            "chat_template": _template(served),
            "bos_token": _token(model, "bos"),
            "eos_token": _token(model, "eos"),
            "build_info": f"emel {__version__}",
            "system_fingerprint": served.fingerprint,
            "isa": model.isa,
            "n_threads": model.n_threads,
        }
    )


async def load_model(request: Request) -> Response:
    """Loads a served model that was unloaded; within a budget it may take the place of one that is not in use."""
    models: ServedModels = request.app.state.models
    served = models.find((await read_shape(request, ModelName)).model)
    tell_model(request.scope, served.name)
    await models.load(served)
    if served.state is LoadState.FAILED:
        raise ApiError(503, f"the model {served.name!r} could not be loaded: {served.error}")
    return JSONResponse({"success": True, "model": _described(served, models)})


async def unload_model(request: Request) -> Response:
    """Gives a model's memory back; it is loaded again when somebody asks for it."""
    models: ServedModels = request.app.state.models
    served = models.find((await read_shape(request, ModelName)).model)
    tell_model(request.scope, served.name)
    await models.unload(served, reason="by a request")
    return JSONResponse({"success": True, "model": _described(served, models)})


def _token(model: Model, name: str) -> str:
    """The text of the token that begins ("bos") or ends ("eos") a text; "" when the file names none."""
    token = model.metadata.get(f"tokenizer.ggml.{name}_token_id")
    if not isinstance(token, int) or not 0 <= token < model.n_vocab:
        return ""
    return model.tokenizer.token_bytes(token).decode("utf-8", "replace")


def _template(served: ServedModel) -> str | None:
    try:
        return served.template.source
    except ValueError:
        return None


def _described(served: ServedModel, models: ServedModels) -> dict[str, Any]:
    described: dict[str, Any] = {
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "emel",
        "status": served.state.value,
        "aliases": models.aliases_of(served),
    }
    if served.state is LoadState.READY:
        model = served.model
        described["meta"] = {
            "vocab_type": _VOCABULARIES.get(str(model.metadata.get("tokenizer.ggml.model")), 0),
            "n_vocab": model.n_vocab,
            "n_ctx": model.n_ctx,
            "n_ctx_train": model.n_ctx_train,
            "n_embd": model.d_model,
            "n_params": model.n_parameters,
            "size": model.n_bytes,
        }
    return described
