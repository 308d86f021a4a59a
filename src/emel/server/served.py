"""The models a server has: loaded in the background, found by name, unloaded when nobody wants them."""

from __future__ import annotations

import asyncio
import logging
import time
from enum import Enum
from typing import TYPE_CHECKING

from emel.errors import EmelError
from emel.server.errors import ApiError
from emel.text.answers import find_dialect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from emel.engine.model import Model
    from emel.text.answers import Dialect
    from emel.text.chat import ChatTemplate


_log = logging.getLogger("emel.server")


class LoadState(Enum):
    """What has become of a model."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


class ServedModel:
    """One model by its name. `load` is called in a thread, as often as the model is to be loaded anew."""

    def __init__(self, name: str, load: Callable[[], Model]) -> None:
        self.name = name
        self.created = int(time.time())
        self.state = LoadState.UNLOADED
        self.error: str | None = None
        self.last_used = time.monotonic()
        self._load = load
        self._model: Model | None = None
        self._loading: asyncio.Task[None] | None = None

    @property
    def model(self) -> Model:
        """The loaded model; ApiError 503 while it is not there."""
        if self._model is None:
            raise self._unavailable()
        return self._model

    @property
    def template(self) -> ChatTemplate:
        """How it wants chats; RequestError when it has no template."""
        return self.model.chat_template

    @property
    def dialect(self) -> Dialect:
        """How it writes calls of tools."""
        return find_dialect(self.template.source)

    @property
    def fingerprint(self) -> str:
        """What decides the bits of an answer: the version of the arithmetic, and the model."""
        return self.model.fingerprint

    @property
    def is_loaded(self) -> bool:
        """Whether it is in memory."""
        return self._model is not None

    @property
    def is_idle(self) -> bool:
        """Whether it is loaded and no request runs or waits."""
        if self._model is None:
            return False
        view = self._model.wave.snapshot()
        if view.lanes or view.waiting:
            self.last_used = time.monotonic()
        return not (view.lanes or view.waiting)

    def start_loading(self) -> asyncio.Task[None]:
        """Loads it in the background, unless that is going on or done."""
        if self._loading is None or (self._loading.done() and self.state is not LoadState.READY):
            self.state, self.error = LoadState.LOADING, None
            self._loading = asyncio.ensure_future(self._load_in_thread())
        return self._loading

    async def _load_in_thread(self) -> None:
        try:
            self._model = await asyncio.to_thread(self._load)
        except Exception as error:
            self.state, self.error = LoadState.FAILED, str(error) or type(error).__name__
            is_ours = not isinstance(error, EmelError | MemoryError | OSError)
            _log.error("%s: could not be loaded: %s", self.name, self.error, exc_info=is_ours)
        else:
            self.state, self.last_used = LoadState.READY, time.monotonic()

    async def unload(self) -> None:
        """Gives its memory back; requests that run fail."""
        if self._loading is not None:
            await asyncio.wait({self._loading})
        model, self._model = self._model, None
        if self.state is LoadState.READY:
            self.state = LoadState.UNLOADED
        if model is not None:
            await asyncio.to_thread(model.close)

    def _unavailable(self) -> ApiError:
        if self.state is LoadState.FAILED:
            return ApiError(503, f"the model {self.name!r} could not be loaded: {self.error}")
        return ApiError(503, "Loading model", headers={"retry-after": "1"})


class ServedModels:
    """All models of a server, by name; the first is the one for requests that name none."""

    def __init__(self, loads: Mapping[str, Callable[[], Model]], aliases: Mapping[str, str] | None = None) -> None:
        """loads: name -> what loads it. aliases: another name -> name."""
        self._models = {name: ServedModel(name, load) for name, load in loads.items()}
        self._aliases = dict(aliases or {})

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models.values())

    @property
    def first(self) -> ServedModel:
        """The model for requests that name none."""
        return next(iter(self._models.values()))

    @property
    def is_ready(self) -> bool:
        """Whether nothing is being loaded."""
        return all(each.state is not LoadState.LOADING for each in self)

    def find(self, name: str | None) -> ServedModel:
        """The model of a name. A server with one model takes any name; else ApiError 404 names those there are."""
        if name is None or (len(self._models) == 1 and name not in self._aliases):
            return self.first
        return self.named(name)

    def named(self, name: str) -> ServedModel:
        """The model of a name or alias; ApiError 404 names those there are."""
        found = self._models.get(self._aliases.get(name, name))
        if found is None:
            known = ", ".join([*self._models, *self._aliases])
            message = f"there is no model {name!r:.80}: served are {known}"
            raise ApiError(404, message, code="model_not_found", param="model")
        return found

    async def ready(self, name: str | None) -> ServedModel:
        """The model of a name, loaded anew if it was unloaded for want of requests; ApiError 404 or 503."""
        served = self.find(name)
        if served.state is LoadState.UNLOADED:
            await served.start_loading()
        served.model  # noqa: B018 - raises when it is not there
        served.last_used = time.monotonic()
        return served

    def start(self) -> None:
        """Begins to load all of them."""
        for each in self:
            each.start_loading()

    async def unload_idle(self, seconds: float) -> None:
        """Unloads those that nobody has asked for so long."""
        for each in self:
            if each.is_idle and time.monotonic() - each.last_used > seconds:
                await each.unload()

    async def close(self) -> None:
        """Unloads all."""
        for each in self:
            await each.unload()
