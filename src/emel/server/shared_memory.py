"""One budget of memory for all models of a server.

A model that is to be loaded gets what it needs. Where others have too much of the budget, those that no request holds
are unloaded, the longest unused first. Where that is not enough, it gets what is left and streams the rest of its
weights; and where not even that works, the request is told so. How long a context may be follows from the whole
budget, never from what others took.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from emel.engine.budget import Grant
from emel.errors import ModelLoadError, RequestError
from emel.server.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from emel.server.served_model import ServedModel


class SharedMemory:
    """Who has how much of `n_bytes`. needs: name of a model -> what it takes of a grant; ModelLoadError if too small.

    One model at a time may be loaded or unloaded: hold `lock` meanwhile.
    """

    def __init__(self, n_bytes: int, needs: Mapping[str, Callable[[Grant], int]]) -> None:
        self.n_bytes = n_bytes
        self.lock = asyncio.Lock()
        self._needs = needs
        self._granted: dict[str, int] = {}

    @property
    def n_free(self) -> int:
        """Bytes nobody has."""
        return self.n_bytes - sum(self._granted.values())

    def granted_to(self, name: str) -> int:
        """Bytes a model has; 0 when it is not loaded."""
        return self._granted.get(name, 0)

    async def grant(self, served: ServedModel, others: Iterable[ServedModel], *, may_unload: bool) -> Grant:
        """Memory for a model, which is its own until it is unloaded; unloads others for it if it may.

        ApiError 503 when the others that are in use leave too little; ModelLoadError when all of it would not do.
        """
        wanted = await self._needed(served, self.n_bytes)
        others = list(others) if may_unload else []
        while wanted > self.n_free and (idle := [each for each in others if each.is_idle]):
            longest_unused = min(idle, key=_last_used)
            await self.unload(longest_unused, f"to make room for {served.name}")  # meanwhile a request may take another
        n_bytes = wanted if wanted <= self.n_free else await self._within_rest(served, wanted, may_unload=may_unload)
        self._granted[served.name] = n_bytes
        return Grant(n_bytes, self.n_bytes)

    async def unload(self, served: ServedModel, reason: str | None = None) -> None:
        """Unloads a model and takes its memory back. reason: as that of ServedModel.unload."""
        await served.unload(reason)
        self.take_back(served)

    def take_back(self, served: ServedModel) -> None:
        """A model that is not loaded has nothing."""
        self._granted.pop(served.name, None)

    async def _within_rest(self, served: ServedModel, wanted: int, *, may_unload: bool) -> int:
        """What a model takes that must stream because others are in use."""
        if may_unload:
            try:
                return await self._needed(served, self.n_free)
            except (ModelLoadError, RequestError):  # RequestError: its draft model alone takes more
                pass
        held = ", ".join(f"{name!r} ({n_bytes})" for name, n_bytes in self._granted.items())
        raise ApiError(
            503,
            f"the model {served.name!r} needs {wanted} bytes, and {self.n_free} of the budget of {self.n_bytes} are "
            f"left beside {held}; try again when they are idle, unload one (POST /models/unload), or start the server "
            "with more --memory",
            code="model_does_not_fit",
            headers={"retry-after": "5"},
        )

    async def _needed(self, served: ServedModel, n_bytes: int) -> int:
        return await asyncio.to_thread(self._needs[served.name], Grant(n_bytes, self.n_bytes))


def _last_used(served: ServedModel) -> float:
    return served.last_used
