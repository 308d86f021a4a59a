"""The models a server has: loaded in the background, found by name, unloaded when nobody wants them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from emel.errors import EmelError
from emel.server.errors import ApiError
from emel.server.served_model import LoadState, ServedModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from emel.engine.model import Model
    from emel.server.shared_memory import SharedMemory

_log = logging.getLogger("emel.server")

_MOST_LOADS = 3
"""Times a request has a model loaded that others unload before it could be used."""


class ServedModels:
    """All models of a server, by name; the first is the one for requests that name none."""

    def __init__(
        self,
        loads: Mapping[str, Callable[..., Model]],
        aliases: Mapping[str, str] | None = None,
        memory: SharedMemory | None = None,
    ) -> None:
        """loads: name -> what loads it. aliases: another name -> name. memory: the budget they share."""
        self._models = {name: ServedModel(name, load) for name, load in loads.items()}
        self._aliases = dict(aliases or {})
        self._loading: dict[str, asyncio.Task[ApiError | None]] = {}
        self._starting: list[asyncio.Task[ApiError | None]] = []
        self.memory = memory

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models.values())

    @property
    def first(self) -> ServedModel:
        """The model for requests that name none."""
        return next(iter(self._models.values()))

    def aliases_of(self, served: ServedModel) -> list[str]:
        """Its further names."""
        return [alias for alias, name in self._aliases.items() if name == served.name]

    @property
    def is_ready(self) -> bool:
        """Whether every model of the start was loaded, failed, or found no room."""
        return all(each.done() for each in self._starting)

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
        """The model of a name, loaded anew if it was unloaded; ApiError 404, 503 (at the start, or without room).

        Who unloads it meanwhile does not take it from a request that waits for it: it is loaded again, a few times.
        """
        served = self.find(name)
        served.hold()  # or it could be unloaded for another while it is loaded
        try:
            for _ in range(_MOST_LOADS):
                if served.is_loaded or not self._can_be_loaded(served):
                    break
                await self.load(served)
            served.model  # noqa: B018 - raises when it is not there
        except BaseException:
            served.release()
            raise
        return served

    def _can_be_loaded(self, served: ServedModel) -> bool:
        """Whether a request may have it loaded: not at the start, when all of them are, nor when that failed."""
        return served.state is LoadState.UNLOADED or (served.state is LoadState.LOADING and self.is_ready)

    async def load(self, served: ServedModel) -> None:
        """Loads a model, unless that is going on or done; ApiError 503 when there is no room for it."""
        refusal = await asyncio.shield(self._start_loading(served))  # it goes on when its first client goes away
        if refusal is not None:
            raise refusal

    async def unload(
        self, served: ServedModel, idle_seconds: float | None = None, *, reason: str | None = None
    ) -> None:
        """Gives a model's memory back; requests that run fail.

        idle_seconds: only if, once that can be done, nobody has asked for it so long. reason: for the log.
        """
        loading = self._loading.get(served.name)
        if loading is not None:
            await asyncio.wait({loading})
        async with self.memory.lock if self.memory is not None else contextlib.nullcontext():
            if idle_seconds is not None and not served.is_idle_for(idle_seconds):
                return
            if self.memory is None:
                await served.unload(reason)
            else:
                await self.memory.unload(served, reason)

    def start(self) -> None:
        """Begins to load all of them; within a budget those that find room beside the ones before them."""
        self._starting = [self._start_loading(each, is_start=True) for each in self]

    async def started(self) -> Exception | None:
        """Waits until each model of the start was loaded, failed, or found no room; the failure, if all failed."""
        await asyncio.wait(self._starting)
        if any(each.state is not LoadState.FAILED for each in self):
            return None
        if len(self._models) == 1:
            return self.first.failure
        hint = next((each.hint for each in self if each.hint), None)
        return EmelError(f"none of the {len(self._models)} models could be loaded", hint=hint)

    async def unload_idle(self, seconds: float) -> None:
        """Unloads those that nobody has asked for so long."""
        for each in self:
            if each.is_idle_for(seconds):
                await self.unload(each, idle_seconds=seconds, reason=f"nobody asked for it in {seconds:g} s")

    async def close(self) -> None:
        """Unloads all."""
        for each in self:
            await self.unload(each)

    def _start_loading(self, served: ServedModel, *, is_start: bool = False) -> asyncio.Task[ApiError | None]:
        loading = self._loading.get(served.name)
        if loading is None or (loading.done() and served.state is not LoadState.READY):
            served.state, served.error, served.failure = LoadState.LOADING, None, None
            loading = self._loading[served.name] = asyncio.ensure_future(self._load(served, is_start=is_start))
        return loading

    async def _load(self, served: ServedModel, *, is_start: bool) -> ApiError | None:
        """What keeps it from being loaded for now; another failure is the model's state."""
        refusal = await self._load_within(served, is_start=is_start)
        if not (is_start and len(self._models) == 1):  # of one alone `started` tells
            served.log_failure()
        return refusal

    async def _load_within(self, served: ServedModel, *, is_start: bool) -> ApiError | None:
        if self.memory is None:
            await served.load(None)
            return None
        async with self.memory.lock:
            others = [each for each in self if each is not served]
            try:
                grant = await self.memory.grant(served, others, may_unload=not is_start)
            except ApiError as refusal:
                served.state = LoadState.UNLOADED
                _log.info("%s: not loaded: %s", served.name, refusal)
                return refusal
            except Exception as error:
                served.fail(error)
                return None
            await served.load(grant)
            if not served.is_loaded:
                self.memory.take_back(served)
        return None
