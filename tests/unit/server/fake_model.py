"""A model for tests of the server alone: what it answers, and when, is in the test's hands."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from emel.engine.arguments import checked_ids, checked_prompt, checked_request
from emel.engine.results import Chunk, Completion, Timings
from emel.memory.prefix import PrefixCounters
from emel.text.chat import ChatTemplate
from emel.text.chat_templates import TEMPLATES
from emel.text.lanes import WaveCounters
from unit.text.tiny_vocabulary import tiny_tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emel.engine.request import Listener
    from emel.kernel.streaming import Traffic

TIMINGS = Timings(n_prompt_tokens=3, n_tokens=2, prefill_seconds=0.1, decode_seconds=0.1, time_to_first_token=0.1)


def completion(text: str, reason: str = "stop", n_cached: int = 0, n_tokens: int = 2) -> Completion:
    return Completion(text, tuple(range(n_tokens)), reason, TIMINGS, 3, 7, {"temperature": 0.5}, n_cached)


@dataclass(eq=False)
class FakeRequest:
    """A request that was submitted; the test, or `script`, says what becomes of it."""

    prompt_ids: Sequence[int]
    listener: Listener
    options: dict[str, Any]
    is_cancelled: threading.Event = field(default_factory=threading.Event)
    is_over: bool = False
    progress: tuple[int, int, int] = (0, 0, 0)

    def cancel(self) -> None:
        if not self.is_over:
            self.is_over = True
            self.is_cancelled.set()
            self.listener.on_end(completion("", "cancelled"))

    def say(self, *texts: str, reason: str = "stop") -> None:
        """All the texts, and the end."""
        for text in texts:
            self.listener.on_chunk(Chunk(text, (1,)))
        whole = completion("".join(texts), reason)
        if self.options.get("digests"):
            whole = replace(whole, digests=("0" * 16,) * len(whole.token_ids))
        self.listener.on_chunk(Chunk("", (), reason, whole))
        self.end(whole)

    def end(self, whole: Completion) -> None:
        self.is_over = True
        self.listener.on_end(whole)

    def fail(self, error: Exception) -> None:
        self.is_over = True
        self.listener.on_failure(error)


@dataclass
class FakeView:
    lanes: tuple[Any, ...] = ()
    waiting: tuple[Any, ...] = ()
    n_lanes: int = 8
    n_blocks: int = 100
    n_blocks_in_use: int = 10


class FakeWave:
    def __init__(self) -> None:
        self.view = FakeView()
        self.counters = WaveCounters()
        self.prefixes = PrefixCounters()
        self.traffic: Traffic | None = None

    def snapshot(self) -> FakeView:
        return self.view


class FakeModel:
    """Answers each request with `texts` from another thread, unless `texts` is None: then the test answers."""

    n_ctx, n_ctx_train, d_model, n_bytes, n_threads, isa, path = 4096, 8192, 16, 1000, 1, "scalar", "fake.gguf"
    fingerprint, activations = "emel-1-fake", "int16"
    chosen_template: str | None = None
    engine = SimpleNamespace(kv_type="f16", n_ctx_asked=4096)
    n_parameters = 500
    metadata: ClassVar[dict[str, Any]] = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.eos_token_id": 2}

    def __init__(self, *texts: str, template: str = TEMPLATES["chatml"]) -> None:
        self.texts: tuple[str, ...] | None = texts or None
        self.tokenizer = tiny_tokenizer([])
        self.n_vocab = self.tokenizer.n_vocab
        self.chat_template = ChatTemplate(template)
        self.wave = FakeWave()
        self.requests: list[FakeRequest] = []
        self.n_shared: list[int] = []
        self.submitted = threading.Event()
        self.is_closed = False
        self._count = itertools.count()

    def submit(self, prompt_ids: Sequence[int], listener: Listener, **options: Any) -> FakeRequest:
        checked_prompt(prompt_ids, self.n_vocab, self.n_ctx)
        checked_request(options, self.tokenizer)
        request = FakeRequest(list(prompt_ids), listener, options)
        self.requests.append(request)
        self.submitted.set()
        if self.texts is not None:
            threading.Thread(target=request.say, args=self.texts).start()
        return request

    def submit_all(self, prompt_ids: Sequence[int], listeners: Sequence[Listener], **options: Any) -> list[FakeRequest]:
        made = []
        for index, listener in enumerate(listeners):
            own = dict(options)
            if own.get("seed") is not None:
                own["seed"] += index
            made.append(self.submit(prompt_ids, listener, **own))
        self.n_shared.append(len(listeners))
        return made

    def tokenize(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        return self.tokenizer.encode(text, add_special=add_special, parse_special=parse_special)

    def embed(self, texts: Sequence[Sequence[int]], pooling: str | None = None) -> Any:
        assert pooling in (None, "mean", "cls", "last")
        return numpy.ones((len(texts), self.d_model), numpy.float32)

    def detokenize(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(checked_ids(ids, self.n_vocab)).decode("utf-8", "replace")

    def close(self) -> None:
        self.is_closed = True
