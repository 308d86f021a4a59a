"""Model: the public Python API over one session."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Literal, overload

from emel.engine.request import Request, as_request_error
from emel.engine.results import Timings
from emel.engine.session import Session
from emel.errors import RequestError
from emel.graph.batch import Outputs
from emel.text.chat import load_chat_template
from emel.text.chat_tokens import encode_chat
from emel.text.generator import check_output
from emel.text.sampling import SamplingError, SamplingParams

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    import numpy as np
    from numpy.typing import NDArray

    from emel.engine.results import Chunk, Completion
    from emel.text.chat import ChatTemplate

_SAMPLING_FIELDS = frozenset({"temperature", "top_k", "top_p", "min_p", "seed", "max_tokens"})


class Model:
    """A loaded model. Thread-safe: requests of several threads take turns step by step. A context manager.

    Sampling keywords of every generating method: temperature, top_k, top_p, min_p, seed, max_tokens (SamplingParams has
    the defaults and ranges) and stop (a string or several). Errors: RequestError (a ValueError) for a request that
    cannot be answered.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        n_ctx: int | None = None,
        n_threads: int | None = None,
        isa: str | None = None,
    ) -> None:
        self._session: Session | None = Session(path, n_ctx=n_ctx, n_threads=n_threads, isa=isa)
        self._template: ChatTemplate | None = None

    # ---- what it is

    @property
    def n_ctx(self) -> int:
        """Tokens a request may have, prompt and answer together."""
        return self._open().n_ctx

    @property
    def n_vocab(self) -> int:
        """Size of the vocabulary."""
        return self._open().n_vocab

    @property
    def isa(self) -> str:
        """Name of the CPU route that computes."""
        return self._open().route.name

    @property
    def n_threads(self) -> int:
        """Lanes that compute."""
        return self._open().threads.n_threads

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The file's metadata."""
        return self._open().model.metadata

    @property
    def session(self) -> Session:
        """What computes; for tools that look inside."""
        return self._open()

    # ---- text

    def tokenize(self, text: str | bytes, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Token ids. add_special: a begin token if the model wants one; parse_special: control tokens are read."""
        return self._open().tokenizer.encode(text, add_special=add_special, parse_special=parse_special)

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """The text of tokens; bytes that are no UTF-8 become U+FFFD."""
        return self._open().tokenizer.decode(list(token_ids)).decode("utf-8", "replace")

    # ---- generation

    def generate(self, prompt: str, **sampling: Any) -> Completion:
        """Continues a raw prompt."""
        return self.generate_ids(self.tokenize(prompt), **sampling)

    def generate_ids(self, prompt_ids: Sequence[int], **sampling: Any) -> Completion:
        """Continues a prompt given as token ids."""
        return self._request(prompt_ids, sampling).completion()

    def stream(self, prompt: str, **sampling: Any) -> Iterator[Chunk]:
        """Continues a raw prompt chunk by chunk; closing the iterator cancels."""
        return self._request(self.tokenize(prompt), sampling).chunks()

    @overload
    def chat(
        self, messages: Sequence[Mapping[str, Any]], *, stream: Literal[False] = ..., **sampling: Any
    ) -> Completion: ...
    @overload
    def chat(
        self, messages: Sequence[Mapping[str, Any]], *, stream: Literal[True], **sampling: Any
    ) -> Iterator[Chunk]: ...
    def chat(
        self, messages: Sequence[Mapping[str, Any]], *, stream: bool = False, **sampling: Any
    ) -> Completion | Iterator[Chunk]:
        """The assistant's next message, by the model's chat template.

        messages: dicts with "role" and "content". Control tokens in their text stay ordinary text. ChatTemplateError
        (a ValueError) when the template refuses them.
        """
        request = self._request(self.encode_chat(messages), sampling)
        return request.chunks() if stream else request.completion()

    def encode_chat(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> list[int]:
        """The token ids of a chat as the template writes it, ready for the assistant's answer."""
        session = self._open()
        if self._template is None:
            self._template = load_chat_template(session.model.metadata, session.tokenizer)
        return encode_chat(session.tokenizer, self._template, messages, **variables)

    # ---- numbers

    def logits(self, token_ids: Sequence[int], *, chunk: int | None = None) -> NDArray[np.float32]:
        """Logits (n_tokens, n_vocab) float32 of every position, computed `chunk` tokens at a time: never other bits."""
        import numpy

        session = self._open()
        ids = self._checked_ids(token_ids)
        n_step = min(chunk or len(ids), session.batch.capacity.max_outputs, session.chunk)
        if n_step < 1:
            raise RequestError(f"chunk is {chunk}: 1 or more tokens are allowed")
        out = numpy.empty((len(ids), session.n_vocab), dtype=numpy.float32)
        with session.sequence(), session.step_lock:
            sequence = session.cache.open()
            try:
                for begin in range(0, len(ids), n_step):
                    part = ids[begin : begin + n_step]
                    self._compute(session, part, sequence, Outputs.ALL)
                    for row in range(len(part)):
                        out[begin + row] = session.batch.logits(row)
            finally:
                session.cache.close_sequence(sequence)
        return out

    def measure(self, prompt_ids: Sequence[int], n_decode: int) -> Timings:
        """Times the engine alone: prefill of exactly these tokens (logits of the last), then greedy steps; no text."""
        session = self._open()
        ids = self._checked_ids(prompt_ids)
        if n_decode < 0 or len(ids) + n_decode > session.n_ctx:
            raise RequestError(f"{len(ids)} tokens and {n_decode} more do not fit the context of {session.n_ctx}")
        with session.sequence(), session.step_lock:
            sequence = session.cache.open()
            try:
                begin = time.perf_counter()
                for at in range(0, len(ids), session.chunk):
                    last = at + session.chunk >= len(ids)
                    outputs = Outputs.LAST if last else Outputs.NONE
                    self._compute(session, ids[at : at + session.chunk], sequence, outputs)
                first = time.perf_counter()
                batch = session.batch
                for _ in range(n_decode):
                    token = batch.argmax[0]
                    batch.clear()
                    batch.add_token(token, session.cache.reserve(sequence, 1), sequence)
                    session.graph.compute(batch)
                end = time.perf_counter()
            finally:
                session.cache.close_sequence(sequence)
        return Timings(len(ids), n_decode + 1, first - begin, end - first, first - begin)

    # ---- life

    def close(self) -> None:
        """Gives all memory back, once no request runs. Harmless when repeated."""
        session, self._session = self._session, None
        if session is not None:
            with session.step_lock:
                session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- inside

    def _open(self) -> Session:
        if self._session is None:
            raise RequestError("this model is closed", hint="load it again with emel.load")
        return self._session

    def _request(self, prompt_ids: Sequence[int], sampling: dict[str, Any]) -> Request:
        session = self._open()
        ids = self._checked_ids(prompt_ids)
        given = dict(sampling)
        stop = given.pop("stop", None)
        unknown = sorted(given.keys() - _SAMPLING_FIELDS)
        if unknown:
            allowed = ", ".join(sorted(_SAMPLING_FIELDS | {"stop"}))
            raise RequestError(f"unknown sampling parameter {unknown[0]!r}: known are {allowed}")
        try:
            params = SamplingParams(**given)
            stops = () if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)
            return Request(session, ids, params, stops)
        except SamplingError as error:
            raise RequestError(str(error)) from None

    def _checked_ids(self, token_ids: Sequence[int]) -> list[int]:
        session = self._open()
        ids = [int(each) for each in token_ids]
        if not ids:
            raise RequestError("the prompt has no tokens: give at least one character")
        if len(ids) > session.n_ctx:
            raise RequestError(
                f"the prompt has {len(ids)} tokens, the context holds {session.n_ctx}",
                hint="shorten it, or load with a larger n_ctx",
            )
        for each in (min(ids), max(ids)):
            if not 0 <= each < session.n_vocab:
                raise RequestError(f"token id {each} is outside the vocabulary of {session.n_vocab}")
        return ids

    @staticmethod
    def _compute(session: Session, ids: list[int], sequence: int, outputs: Outputs) -> None:
        batch = session.batch
        batch.clear()
        batch.add(ids, session.cache.reserve(sequence, len(ids)), sequence, outputs=outputs)
        try:
            session.graph.compute(batch)
            for output in range(batch.n_outputs):
                check_output(batch, output)
        except ValueError as error:
            raise as_request_error(error) from error


def load(
    model: str | os.PathLike[str],
    *,
    n_ctx: int | None = None,
    n_threads: int | None = None,
    isa: str | None = None,
) -> Model:
    """Loads a GGUF: a path, a built-in name (fetched once), or hf:owner/repo[:quant].

    n_ctx: tokens of context (None: up to 4096, 0: all the model has); n_threads: None chooses by the CPUs this process
    may use; isa: a CPU route by name (None: the best; all give the same bits). Errors: ModelNotFoundError,
    GgufError, ModelError (ValueErrors), SourceError (an OSError), MemoryError.
    """
    from emel.engine.models import resolve_model

    return Model(resolve_model(os.fspath(model)), n_ctx=n_ctx, n_threads=n_threads, isa=isa)
