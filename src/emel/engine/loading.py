"""Loading: the weights come in a thread of their own while the rest of EMEL is imported.

Reading and packing weights is native and leaves the interpreter free; importing what computes with them is Python. Each
takes about a tenth of a second for a small model, so they go side by side.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import threading
from functools import partial
from typing import TYPE_CHECKING

from emel.engine.arguments import KEYWORDS_OF_REQUESTS, checked_model, checked_whole
from emel.engine.options import DEFAULT_CONTEXT, DEFAULT_LANES, DEFAULT_SPECULATION, LoadOptions

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType
    from typing import Never, Self

    from emel.engine.adapters import Lora
    from emel.engine.model import Model
    from emel.kernel.pool import LanePool
    from emel.kernel.threads import ThreadChoice
    from emel.model.loader import LoadedModel, ModelDescription
    from emel.model.residency import WeightBudget


class Preload:
    """A model that is being loaded, with all its weights in memory. A context manager: closes what nobody took."""

    def __init__(self, path: str | os.PathLike[str], options: LoadOptions) -> None:
        self._load = partial(load_weights, path, options)
        self._loaded: tuple[ThreadChoice, LanePool, LoadedModel] | None = None
        self._error: BaseException | None = None
        importlib.import_module("emel.model.loader")  # here: two threads that import at once wait for each other
        self._thread = threading.Thread(target=self._run, name="emel-load")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._loaded = self._load()
        except BaseException as error:
            self._error = error

    def take(self) -> tuple[ThreadChoice, LanePool, LoadedModel]:
        """What was loaded, which is the caller's to close; waits for it. Raises what kept it from being loaded."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._loaded is not None
        loaded, self._loaded = self._loaded, None
        return loaded

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.join()
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            _, pool, model = loaded
            model.close()
            pool.close()


def load_weights(
    path: str | os.PathLike[str],
    options: LoadOptions,
    budget: Callable[[ModelDescription], WeightBudget] | None = None,
) -> tuple[ThreadChoice, LanePool, LoadedModel]:
    """Lanes, and the model they read and packed. Errors: as those of `load`."""
    from emel.engine.adapters import checked_adapters
    from emel.engine.failures import load_failures, request_failures
    from emel.kernel.pool import LanePool
    from emel.kernel.threads import choose_threads
    from emel.model.loader import load_model

    adapters = checked_adapters(options.lora)
    with request_failures():
        threads = choose_threads(None if options.n_threads is None else checked_whole(options.n_threads, "n_threads"))
        pool = LanePool(threads.n_threads)
    try:
        with load_failures():
            n_ctx = DEFAULT_CONTEXT if options.n_ctx is None else options.n_ctx or None
            model = load_model(path, pool, n_ctx=n_ctx, overrides=options.overrides, budget=budget, adapters=adapters)
            return threads, pool, model
    except BaseException:
        pool.close()
        raise


@contextlib.contextmanager
def _paused_collector() -> Iterator[None]:
    """What is imported and loaded is there to stay: a collector would look through all of it in vain, many times."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def load(
    model: str | os.PathLike[str],
    *,
    n_ctx: int | None = None,
    n_threads: int | None = None,
    isa: str | None = None,
    activations: str | None = None,
    n_lanes: int = DEFAULT_LANES,
    prefix_bytes: int | None = None,
    overrides: Mapping[str, int | float | bool | str] | None = None,
    kv_type: str | None = None,
    memory: int | str | None = None,
    speculation: str | None = DEFAULT_SPECULATION,
    draft: str | os.PathLike[str] | None = None,
    lora: Lora = (),
    chat_template: str | None = None,
    **unknown: Never,
) -> Model:
    """Loads a GGUF: a path, a built-in name (fetched once), or hf:owner/repo[:quant].

    n_ctx: tokens of context (None: up to 4096, 0: all the model has); n_threads: None chooses by the CPUs this process
    may use; isa: a CPU route by name (None: the best; all give the same bits); n_lanes: requests computed at a time, up
    to 256; prefix_bytes: what prefixes of earlier requests may occupy (None: the memory that is free); overrides:
    metadata by key, in place of or besides the file's; kv_type: what keys and values are kept as, "f16" (None), "f32":
    twice the memory, not rounded, or "q8_0": half the memory, less exact; memory: what all of it may take, such as
    "2GiB" or "50%" of what is available (None: as much as it needs): weights that do not fit are streamed from the
    file; activations: what values become before they meet a matrix, "int16" (None) or "int8", which reads prompts up
    to twice as fast, at the accuracy of other engines and with other bits (docs/decisions/0001-two-planes.md);
    speculation: "lookup" computes guesses of what comes next along with what has come, where that is faster, and
    changes no bit (None: never);
    draft: a smaller model of the same vocabulary that guesses in its place; lora: adapters in GGUF, each a path or
    (path, scale), merged into the weights in their order; chat_template: how chats are written in place of what the
    file says, a name such as "chatml" or Jinja. Errors: ModelNotFoundError, ModelFetchError, ModelLoadError
    (a ValueError), ModelReadError (an OSError), RequestError (a ValueError) for the arguments, MemoryError.
    """
    from emel.engine.models import resolve_model

    if unknown:
        from emel.engine.other_keywords import unknown_load_keyword

        raise unknown_load_keyword(next(iter(unknown)), load.__kwdefaults__ or (), KEYWORDS_OF_REQUESTS)
    options = LoadOptions(
        n_ctx=n_ctx,
        n_threads=n_threads,
        isa=isa,
        activations=activations,
        n_lanes=n_lanes,
        prefix_bytes=prefix_bytes,
        overrides=overrides,
        kv_type=kv_type,
        memory=memory,
        speculation=speculation,
        draft=None if draft is None else resolve_model(checked_model(draft)),
        lora=lora,
        chat_template=chat_template,
    )
    path = resolve_model(checked_model(model))
    with contextlib.ExitStack() as stack:
        stack.enter_context(_paused_collector())
        preload = None
        if memory is None:  # a budget is shared out before anything is loaded
            preload = stack.enter_context(Preload(path, options))
        from emel.engine.model import Model

        return Model(path, options, preload)
