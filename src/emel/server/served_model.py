"""One model of a server: not loaded, being loaded, there, or failed; and how many requests hold it."""

from __future__ import annotations

import asyncio
import logging
import time
from enum import Enum
from hashlib import blake2b
from typing import TYPE_CHECKING

from emel.errors import EmelError
from emel.server.errors import ApiError
from emel.server.wave_counts import WaveCounts
from emel.text.answers import find_dialect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from emel.engine.budget import Grant
    from emel.engine.model import Model
    from emel.server.hearing import Listener
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
    """One model by its name. `load` is called in a thread, as often as the model is to be loaded anew.

    A request holds it from the moment it was found to the end of its answer; what is held is not idle.
    """

    def __init__(self, name: str, load: Callable[..., Model]) -> None:
        """load: called without arguments, or with `memory`, its grant of a budget that models share."""
        self.name = name
        self.created = int(time.time())
        self.state = LoadState.UNLOADED
        self.error: str | None = None
        self.hint: str | None = None
        self.failure: Exception | None = None
        self.last_used = time.monotonic()
        self.taken: set[Listener] = set()
        """What listens to it and is not over: added to on the event loop, where it is counted."""
        self._n_held = 0
        self._turn = asyncio.Lock()  # it is never loaded while what it was is still there
        self._load = load
        self._model: Model | None = None
        self._fingerprint: str | None = None
        self._counts = WaveCounts()

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
        """What decides the bits of an answer: the model's own, and a digest of a template that it was given."""
        model = self.model
        if self._fingerprint is None:  # every response tells it
            chosen = model.chosen_template
            digest = "" if chosen is None else f"-{blake2b(chosen.encode(), digest_size=4).hexdigest()}"
            self._fingerprint = f"{model.fingerprint}{digest}"
        return self._fingerprint

    @property
    def is_loaded(self) -> bool:
        """Whether it is in memory."""
        return self._model is not None

    @property
    def is_idle(self) -> bool:
        """Whether it is loaded and no request has it."""
        return self._model is not None and not self._n_held

    def counts(self) -> Mapping[str, float]:
        """What its waves have counted, each time it was loaded."""
        return self._counts.total()

    def is_idle_for(self, seconds: float) -> bool:
        """Whether it is idle, and nobody has asked for it so long."""
        return self.is_idle and time.monotonic() - self.last_used > seconds

    def hold(self) -> None:
        """A request has it, until `release`."""
        self._n_held += 1

    def release(self) -> None:
        """The request is over."""
        self._n_held -= 1
        self.last_used = time.monotonic()

    async def load(self, grant: Grant | None) -> None:
        """Loads it within `grant`; then it is READY, or FAILED with the error."""
        given = {} if grant is None else {"memory": grant}
        begin = time.monotonic()
        try:
            async with self._turn:
                self._model = await asyncio.to_thread(self._load, **given)
                self._counts.begin(self._model.wave)
        except Exception as error:
            self.fail(error)
        else:
            self.state, self.last_used = LoadState.READY, time.monotonic()
            _log.info("%s: loaded in %.1f s, %s", self.name, self.last_used - begin, _context_of(self._model))

    def fail(self, error: Exception) -> None:
        """It cannot be loaded, for that reason; who had it loaded tells it, with `log_failure` for one."""
        self.state, self.error, self.failure = LoadState.FAILED, str(error) or type(error).__name__, error
        self.hint = getattr(error, "hint", None)

    def log_failure(self) -> None:
        """A line about why it could not be loaded, if so; with a traceback where EMEL is at fault."""
        if self.failure is not None:
            is_ours = not isinstance(self.failure, EmelError | MemoryError | OSError)
            told = f"{self.error}; {self.hint}" if self.hint else self.error
            _log.error("%s: could not be loaded: %s", self.name, told, exc_info=self.failure if is_ours else None)
            self.failure = None  # its traceback holds what was loaded by then

    async def unload(self, reason: str | None = None) -> None:
        """Gives its memory back; requests that run fail. reason: for the log, if it is to be told."""
        model, self._model, self._fingerprint = self._model, None, None
        if model is not None and reason is not None:
            _log.info("%s: unloaded: %s", self.name, reason)
        if self.state is LoadState.READY:
            self.state = LoadState.UNLOADED
        if model is not None:
            wave = self._counts.begin_end()
            async with self._turn:
                await asyncio.to_thread(model.close)
                self._counts.end(wave)

    def _unavailable(self) -> ApiError:
        if self.state is LoadState.FAILED:
            return ApiError(503, f"the model {self.name!r} could not be loaded: {self.error}")
        if self.state is LoadState.UNLOADED:
            return ApiError(
                503, f"the model {self.name!r} is not loaded: POST /models/load, or a prompt for it, loads it"
            )
        return ApiError(503, "Loading model", headers={"retry-after": "1"})


def _context_of(model: Model) -> str:
    n_ctx, n_most = model.n_ctx, model.n_ctx_train
    if n_ctx < n_most:
        return f"with a context of {n_ctx} tokens (-c N: up to {n_most})"
    return f"with a context of {n_ctx} tokens, all that it has"
