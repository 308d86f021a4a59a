"""Session: one loaded model wired up to compute. Everything is made here once; the wave makes the steps.

Steps run on one thread of its own (emel.engine.mailbox); requests come in and are cancelled between two of them.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from emel.engine.budget import SessionBudget, SessionSizes, granted
from emel.engine.embedding import Embedders
from emel.engine.exclusive import Exclusive
from emel.engine.failures import as_request_error, load_failures, request_failures
from emel.engine.loading import load_weights
from emel.engine.mailbox import Mailbox
from emel.engine.memory import bindings, capacity_for, open_memory
from emel.engine.options import DEFAULT_CONTEXT
from emel.errors import ModelClosedError, RequestError
from emel.graph.batch import Batch
from emel.graph.reservation import ReservedGraph
from emel.kernel.features import Route, choose_route
from emel.kernel.numerics import Activations, choose_activations
from emel.memory.sequences import blocks_for
from emel.text.lanes import WaveKey
from emel.text.prompt_share import PromptShare
from emel.text.speculation import LookupSpeculator, StepCosts
from emel.text.tokenizer import Tokenizer, load_tokenizer
from emel.text.wavefront import MakeRoom, Shut, Step, Submit, WaveContext, WavefrontMachine, Withdraw

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from emel.engine.draft_share import DraftShare
    from emel.engine.drafter import Drafter
    from emel.engine.loading import Preload
    from emel.engine.options import LoadOptions
    from emel.engine.request import Request
    from emel.kernel.pool import LanePool
    from emel.kernel.threads import ThreadChoice
    from emel.memory.hybrid import HybridCache
    from emel.memory.kv import KvCache
    from emel.model.loader import LoadedModel
    from emel.text.speculation import Speculator

T = TypeVar("T")

PREFILL_CHUNK = 512
"""Tokens of a step; a longer prompt is read in several."""
MIXED_CHUNK = 128
"""Tokens of prompts in a step in which others decode, at most; as a rule their time allows fewer."""
MAX_OUTPUTS = 64
"""Rows of logits, at least."""

LARGEST = SessionSizes(DEFAULT_CONTEXT, PREFILL_CHUNK, MAX_OUTPUTS)
"""What a session has where no budget of memory makes it smaller."""

_STEP = Step()


class Session:
    """Weights, plan, memory, batch, tokenizer, compute lanes and the wave of one model.

    `n_lanes` requests run at a time, others wait. Errors: ModelLoadError, ModelReadError, RequestError (an argument out
    of its range), MemoryError.
    """

    def __init__(self, path: str | os.PathLike[str], options: LoadOptions, preload: Preload | None = None) -> None:
        """preload: the same model with the same options, being loaded already."""
        budget = None if options.memory is None else granted(options.memory)
        with request_failures():
            self.route: Route = choose_route(options.isa)
            self.activations: Activations = choose_activations(options.activations)
        self.n_lanes = options.n_lanes
        drafted: DraftShare | None = None
        if budget is not None and options.draft is not None:
            from emel.engine.draft_share import share_for_draft

            drafted = share_for_draft(options.draft, budget, options)
            budget = drafted.rest
        shares = None
        if budget is not None:
            shares = SessionBudget(budget, options.n_ctx, options.n_rows, options.cache_type, LARGEST, draft=drafted)
        self.threads: ThreadChoice
        self.pool: LanePool
        self.model: LoadedModel
        taken = load_weights(path, options, shares.weights if shares else None) if preload is None else preload.take()
        self.threads, self.pool, self.model = taken
        self._opened: list[
            LanePool | LoadedModel | KvCache | HybridCache | Batch | ReservedGraph | Embedders | Drafter
        ] = [self.pool, self.model]
        self.drafter: Drafter | None = None
        try:
            with load_failures():
                self._build(options, LARGEST if shares is None else shares.sizes)
                if options.draft is not None:
                    self._open_drafter(options.draft, drafted)
        except BaseException:
            self._give_back()
            raise
        self.speculation = options.speculation
        self.clock = time.perf_counter
        self.wave = self._new_wave()
        self._arrivals = itertools.count(1)
        self._mailbox = Mailbox()
        self._mailbox.bind(self)

    def _build(self, options: LoadOptions, sizes: SessionSizes) -> None:
        parameters, n_rows = self.model.parameters, options.n_rows
        self.n_vocab = parameters.n_vocab
        self.n_ctx = self.n_ctx_asked = context_size(options.n_ctx, parameters.n_ctx)
        if sizes is not LARGEST:
            self.n_ctx = min(self.n_ctx, sizes.n_ctx)
        self.memory = open_memory(
            parameters,
            n_ctx=self.n_ctx,
            n_rows=n_rows,
            prefix_bytes=options.prefix_bytes,
            kv_type=options.cache_type,
            n_blocks=sizes.n_blocks,
        )
        self._opened.append(self.memory)
        self.chunk = min(sizes.chunk, self.n_ctx)
        max_tokens = max(self.chunk, n_rows)
        max_outputs = min(max(sizes.n_outputs, n_rows), max_tokens)
        capacity = capacity_for(
            self.memory,
            max_tokens=max_tokens,
            max_outputs=max_outputs,
            n_rows=n_rows,
            activations=self.activations,
        )
        self.batch = Batch(capacity, parameters.embedding_width or self.n_vocab, *bindings(self.memory))
        self._opened.append(self.batch)
        self.graph = ReservedGraph(self.model.build, self.model.weights, capacity, pool=self.pool, route=self.route.isa)
        self._opened.append(self.graph)
        self.embedders = Embedders(self)
        self._opened.append(self.embedders)
        self.tokenizer: Tokenizer = load_tokenizer(self.model.metadata, self.n_vocab)

    def _open_drafter(self, path: str | os.PathLike[str], share: DraftShare | None) -> None:
        from emel.engine.draft_share import DRAFT_SIZES
        from emel.engine.drafter import Drafter

        sizes = replace(DRAFT_SIZES, n_ctx=self.n_ctx) if share is None else share.sizes
        self.drafter = Drafter(self, path, sizes)
        self._opened.append(self.drafter)

    @property
    def kv_type(self) -> str:
        """What keys and values are kept as: "f16", "f32" or "q8_0"."""
        return self.batch.kv.kv_type.name.lower()

    @property
    def is_streaming(self) -> bool:
        """Whether every step reads weights from the file: then the more tokens it has, the better."""
        return self.model.residency is not None

    def _new_wave(self) -> WavefrontMachine:
        metadata = self.model.metadata
        self.key = WaveKey(
            model=str(metadata.get("general.name", "")),
            route=self.route.name,
            attention="causal",
            outputs="logits of the last token",
            formats=self.kv_type,
        )
        return WavefrontMachine(
            WaveContext(
                graph=self.graph,
                batch=self.batch,
                memory=self.memory,
                clock=self.clock,
                n_lanes=self.n_lanes,
                n_budget=self.batch.capacity.max_tokens,
                share=self._new_share(),
                costs=None if self.speculation is None and self.drafter is None else StepCosts(),
            )
        )

    def _new_share(self) -> PromptShare:
        if self.is_streaming:  # where a step reads weights, a longer one costs little more, and fewer are needed
            return PromptShare(self.chunk, self.chunk)
        return PromptShare(min(MIXED_CHUNK, self.chunk))

    # ---- from any thread

    def next_arrival(self) -> int:
        """The number of a new request."""
        return next(self._arrivals)

    def new_speculator(self) -> Speculator | None:
        """What guesses for a new request, if anything does."""
        if self.drafter is not None:
            return self.drafter.speculator()
        return LookupSpeculator() if self.speculation is not None else None

    def submit(self, request: Request) -> None:
        """Has a request, and those that follow it, wait for lanes; returns at once. ModelClosedError."""
        self.check_open()
        self._mailbox.put(partial(self._enter, request))

    def withdraw(self, request: Request) -> None:
        """Ends a request within one step; returns at once. Nothing in a process that forked: it runs in the other."""
        if not self.has_forked:
            self._mailbox.put(partial(self._leave, request))

    def between_steps(self, action: Callable[[], T], n_tokens: int = 0) -> T:
        """What `action` returns or raises, called on the compute thread with memory for a sequence of `n_tokens`.

        Waits for the step that runs; lanes whose memory is needed are preempted. ModelClosedError; RequestError from a
        listener, which runs in the midst of a step.
        """
        self.check_open()
        self.check_may_wait()
        exclusive = Exclusive(action)
        self._mailbox.put(partial(self._run_exclusive, exclusive, n_tokens))
        return exclusive.result()

    def check_open(self) -> None:
        """ModelClosedError, or RequestError when the model belongs to another process."""
        self.check_process()
        if self._mailbox.is_closed:
            raise closed_error()

    def check_generates(self) -> None:
        """RequestError for a model that writes no text."""
        if self.model.parameters.embedding_width:
            raise RequestError(
                f"this model ({self.model.description.name}) is an encoder: it has embeddings, but writes no text",
                hint="model.embed(texts) in Python, /v1/embeddings of emel serve",
            )

    @property
    def has_forked(self) -> bool:
        """Whether this process is a fork of the one that loaded the model: it has its memory, but not its threads."""
        return self._mailbox.has_forked

    @property
    def may_wait(self) -> bool:
        """Whether the caller can wait for the wave: not in a fork, and not on the compute thread, as listeners are."""
        return not (self.has_forked or self._mailbox.is_own_thread)

    def check_may_wait(self) -> None:
        """RequestError for a listener that would wait for the wave that waits for it."""
        if self._mailbox.is_own_thread:
            raise RequestError("a listener cannot wait for the model that calls it: submit a request instead")

    def check_process(self) -> None:
        """RequestError in a process that forked from the one that loaded the model."""
        if self.has_forked:
            raise RequestError(
                "this model was loaded before the process forked: its threads did not come along",
                hint="load it in the process that uses it",
            )

    def close(self) -> None:
        """Gives everything back once the step that runs is over; requests that are not done fail.

        Harmless when repeated. A listener may call it too: then it returns before that.
        """
        if self.has_forked:
            self._give_back()
        else:
            self._mailbox.close()

    # ---- on the compute thread

    def work(self) -> bool:
        """One step; False when there is nothing to do."""
        self._dispatch(_STEP)
        return bool(self.wave.context.lanes or self.wave.context.waiting)

    def stop(self) -> None:
        """Fails what is left and gives everything back."""
        if not self.wave.is_terminal:
            self.wave.dispatch(Shut(closed_error()))
        self._give_back()

    def _dispatch(self, event: Submit | Withdraw | Step | MakeRoom) -> None:
        """What breaks off where nothing should ends all requests: its remains cannot be trusted."""
        try:
            self.wave.dispatch(event)
        except BaseException as error:
            self._mailbox.is_closed = True
            self.wave.dispatch(Shut(as_request_error(error)))
            raise

    def _enter(self, request: Request) -> None:
        if self.wave.is_terminal:
            request.refuse(closed_error())
            return
        try:
            self._dispatch(Submit(request))
        except BaseException as error:
            if not request.generator.is_terminal:  # the wave never had it
                request.refuse(as_request_error(error))
            raise

    def _leave(self, request: Request) -> None:
        if not self.wave.is_terminal:
            self._dispatch(Withdraw(request))

    def _run_exclusive(self, exclusive: Exclusive[T], n_tokens: int) -> None:
        if self.wave.is_terminal:
            exclusive.refuse(closed_error())
            return
        try:
            self._dispatch(MakeRoom(blocks_for(n_tokens)))
        except BaseException as error:
            exclusive.refuse(as_request_error(error))
            raise
        exclusive.run()

    def _give_back(self) -> None:
        """Last made first."""
        while self._opened:
            self._opened.pop().close()


def closed_error() -> ModelClosedError:
    """What requests of a closed model end with."""
    return ModelClosedError("this model is closed", hint="load it again with emel.load; close it after its requests")


def context_size(requested: int | None, trained: int) -> int:
    """The session's context: what was asked for, capped by nothing but sense; by default at most DEFAULT_CONTEXT."""
    if requested is None:
        return min(DEFAULT_CONTEXT, trained)
    if requested == 0:
        return trained
    if not 1 <= requested <= trained:
        raise RequestError(
            f"n_ctx is {requested}: this model allows 1 to {trained} (0: all of it)",
            hint="a longer context than the model was trained for gives worse answers, not longer memory",
        )
    return requested
