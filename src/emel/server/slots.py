"""GET /slots: who computes, as llama.cpp's server tells it. A lane is given anew to each request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from emel.server.errors import ApiError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from emel.engine.wave import LaneView
    from emel.server.served import ServedModels
    from emel.server.served_model import ServedModel


async def get_slots(request: Request) -> Response:
    """The lanes of a model; with ?fail_on_no_slot=1 ApiError 503 when none is free.

    Who looks neither loads a model nor keeps it from being idle.
    """
    models: ServedModels = request.app.state.models
    served = models.find(request.query_params.get("model"))
    view = served.model.wave.snapshot()
    if len(view.lanes) >= view.n_lanes and request.query_params.get("fail_on_no_slot") == "1":
        raise ApiError(503, "no slot available", headers={"retry-after": "1"})
    lanes: list[LaneView | None] = [*view.lanes[: view.n_lanes]]
    lanes += [None] * (view.n_lanes - len(lanes))
    return JSONResponse([_slot(served, index, lane) for index, lane in enumerate(lanes)])


def _slot(served: ServedModel, index: int, lane: LaneView | None) -> dict[str, Any]:
    n_ctx = served.model.n_ctx
    slot: dict[str, Any] = {"id": index, "n_ctx": n_ctx, "is_processing": lane is not None}
    if lane is None:
        return slot
    return {
        **slot,
        "id_task": lane.request_id,
        "state": lane.state,
        "n_prompt_tokens": lane.n_prompt,
        "n_prompt_tokens_processed": min(lane.n_computed, lane.n_prompt),
        "next_token": [
            {
                "has_next_token": True,
                "n_decoded": lane.n_tokens,
                "n_remain": max(0, n_ctx - lane.n_prompt - lane.n_tokens),
            }
        ],
    }
