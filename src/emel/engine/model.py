"""Model: the public Python API over one session."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

from emel.engine.arguments import (
    checked_conversations,
    checked_count,
    checked_ids,
    checked_messages,
    checked_path,
    checked_prompt,
    checked_prompts,
    checked_request,
    checked_switch,
    checked_template_variables,
    checked_text,
    checked_whole,
)
from emel.engine.callbacks import checked_listeners
from emel.engine.conversation import Conversation
from emel.engine.exclusive import all_logits, timed
from emel.engine.failures import request_failures
from emel.engine.fingerprint import fingerprint_of_session
from emel.engine.many import complete_many
from emel.engine.session import Session, closed_error
from emel.engine.stream import Stream
from emel.engine.submission import complete, submit_all, with_constraint
from emel.engine.wave import Wave
from emel.errors import RequestError
from emel.text.chat import load_chat_template
from emel.text.chat_tokens import encode_chat
from emel.text.errors import shown

if TYPE_CHECKING:
    import os
    from collections.abc import Coroutine, Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    import numpy as np
    from numpy.typing import NDArray

    from emel.engine.asynchronous import AsyncStream
    from emel.engine.loading import Preload
    from emel.engine.options import LoadOptions
    from emel.engine.request import Listener, Request
    from emel.engine.results import Completion, Timings
    from emel.text.chat import ChatTemplate
    from emel.text.tokenizer import Tokenizer


class Model:
    """A loaded model. Thread-safe: requests of several threads are computed together. A context manager.

    Keywords of every generating method: those of SamplingParams, stop (a string or several), cache_prompt (False: share
    no prefix with other requests), speculate (False: compute no guesses), priority (see emel.text.waiting), and at most
    one that says what the answer must obey: json_schema (a dict, or JSON), grammar (GBNF), regex, or choice (several
    texts, of which it is one). Errors: RequestError (a ValueError) for everything that keeps a request from being
    answered.
    """

    def __init__(self, path: str | os.PathLike[str], options: LoadOptions, preload: Preload | None = None) -> None:
        """For `emel.load`, which takes the options as keywords; preload: the model, being loaded with the same."""
        self._session: Session | None = Session(path, options, preload)
        self._template: ChatTemplate | None = None
        self.chosen_template = options.chat_template  # in place of the file's

    def __repr__(self) -> str:
        if self._session is None:
            return "<emel.Model, closed>"
        return f"<emel.Model {self.path!r}, n_ctx={self.n_ctx}, n_threads={self.n_threads}, isa={self.isa!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a model cannot be pickled or copied: load it in the process that uses it")

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
    def activations(self) -> str:
        """What values are rounded to before they meet weights: "int16" or "int8"."""
        return self._open().activations.name.lower()

    @property
    def n_threads(self) -> int:
        """Lanes that compute."""
        return self._open().threads.n_threads

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The file's metadata."""
        return self._open().model.metadata

    @property
    def n_ctx_train(self) -> int:
        """The longest context the model was trained for."""
        return self._open().model.parameters.n_ctx

    @property
    def d_model(self) -> int:
        """Width of its embeddings."""
        return self._open().model.parameters.d_model

    @property
    def n_bytes(self) -> int:
        """Bytes of its tensors in the file."""
        return sum(tensor.n_bytes for tensor in self._open().model.description.file.tensors.values())

    @property
    def n_parameters(self) -> int:
        """Numbers in its tensors."""
        return sum(tensor.n_values for tensor in self._open().model.description.file.tensors.values())

    @property
    def path(self) -> str:
        """Its file."""
        return str(self._open().model.description.file.path)

    @property
    def fingerprint(self) -> str:
        """What decides the bits of an answer besides the request (emel.engine.fingerprint)."""
        return fingerprint_of_session(self._open())

    @property
    def chat_template(self) -> ChatTemplate:
        """How the model wants chats, or is to have them; RequestError when its file does not say."""
        session = self._open()
        session.check_generates()
        with request_failures():
            if self._template is None:
                metadata, tokenizer = session.model.metadata, session.tokenizer
                self._template = load_chat_template(metadata, tokenizer, self.chosen_template)
        return self._template

    @property
    def tokenizer(self) -> Tokenizer:
        """What turns text into the model's tokens, and back."""
        return self._open().tokenizer

    @property
    def n_lanes(self) -> int:
        """Requests that are computed at a time; others wait."""
        return self._open().n_lanes

    @property
    def engine(self) -> Session:
        """What computes; for tools that look inside."""
        return self._open()

    @property
    def wave(self) -> Wave:
        """What runs and what has been done: wave.snapshot(), wave.counters."""
        return Wave(self._open())

    # ---- text

    def tokenize(self, text: str | bytes, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Token ids. add_special: a begin token if the model wants one; parse_special: control tokens are read."""
        data = checked_text(text, "the text")
        checked_switch(add_special, "add_special")
        checked_switch(parse_special, "parse_special")
        return self._open().tokenizer.encode(data, add_special=add_special, parse_special=parse_special)

    def detokenize(self, token_ids: Iterable[int]) -> str:
        """The text of tokens; bytes that are no UTF-8 become U+FFFD."""
        session = self._open()
        return session.tokenizer.decode(checked_ids(token_ids, session.n_vocab)).decode("utf-8", "replace")

    # ---- generation

    def generate(self, prompt: str | bytes, **sampling: Any) -> Completion:
        """Continues a raw prompt. Keywords: max_tokens, temperature, seed, stop ..., those of the class."""
        return complete(self._open(), self._encode(prompt), sampling)

    def generate_ids(self, prompt_ids: Iterable[int], **sampling: Any) -> Completion:
        """Continues a prompt given as token ids."""
        return complete(self._open(), prompt_ids, sampling)

    def stream(self, prompt: str | bytes, **sampling: Any) -> Stream:
        """Continues a raw prompt chunk by chunk; closing the stream cancels."""
        return Stream(partial(self.submit, self._encode(prompt), **sampling))

    @overload
    def chat(
        self, messages: Sequence[Mapping[str, Any]], *, stream: Literal[False] = ..., **sampling: Any
    ) -> Completion: ...
    @overload
    def chat(self, messages: Sequence[Mapping[str, Any]], *, stream: Literal[True], **sampling: Any) -> Stream: ...
    def chat(
        self, messages: Sequence[Mapping[str, Any]], *, stream: bool = False, **sampling: Any
    ) -> Completion | Stream:
        """The assistant's next message, by the model's chat template.

        messages: dicts with "role" and "content". Control tokens in their text stay ordinary text. A template that
        refuses them says why in the RequestError. chat_template_kwargs: variables of the template, such as
        {"enable_thinking": False}; those it does not know mean nothing.
        """
        self._open().check_generates()
        checked_switch(stream, "stream")
        ids = self._chat_ids(messages, sampling)
        return Stream(partial(self.submit, ids, **sampling)) if stream else complete(self._open(), ids, sampling)

    def session(self, system: str | None = None, **options: Any) -> Conversation:
        """A chat that remembers: `send` a message, get the answer; each turn computes only what is new.

        options: keywords of `chat` for every turn.
        """
        session = self._open()
        session.check_generates()
        sampling = {name: value for name, value in options.items() if name != "chat_template_kwargs"}
        checked_request(with_constraint(sampling, session), session.tokenizer)
        checked_template_variables(options.get("chat_template_kwargs"))
        if system is not None and not isinstance(system, str):
            raise RequestError(f"system is {shown(system)}: it must be a str, or None for no system message")
        return Conversation(self, system, options)

    def generate_many(
        self, prompts: Iterable[str | bytes], *, progress: bool | None = None, **sampling: Any
    ) -> list[Completion]:
        """Continues many prompts at once; the completions come in the order of the prompts.

        progress: a bar on stderr (None: on a terminal). PromptsFailedError when some failed: `results` has the others.
        """
        return complete_many(self._open(), self._encode, checked_prompts(prompts), sampling, progress=progress)

    def chat_many(
        self, conversations: Iterable[Sequence[Mapping[str, Any]]], *, progress: bool | None = None, **sampling: Any
    ) -> list[Completion]:
        """As `generate_many`, for `chat`: the next message of each conversation, a list of messages."""
        session = self._open()
        session.check_generates()
        variables = checked_template_variables(sampling.pop("chat_template_kwargs", None))
        chats = checked_conversations(conversations)
        return complete_many(session, partial(self.encode_chat, **variables), chats, sampling, progress=progress)

    async def agenerate(self, prompt: str | bytes, **sampling: Any) -> Completion:
        """As `generate`, for asyncio; cancelling the task cancels the request."""
        from emel.engine.asynchronous import complete_async

        return await complete_async(partial(self.submit, self._encode(prompt)), sampling, self._open())

    def astream(self, prompt: str | bytes, **sampling: Any) -> AsyncStream:
        """As `stream`, for asyncio; call it in a coroutine."""
        from emel.engine.asynchronous import AsyncStream

        return AsyncStream(partial(self.submit, self._encode(prompt)), sampling, self._open())

    @overload
    def achat(
        self, messages: Sequence[Mapping[str, Any]], *, stream: Literal[False] = ..., **sampling: Any
    ) -> Coroutine[Any, Any, Completion]: ...
    @overload
    def achat(
        self, messages: Sequence[Mapping[str, Any]], *, stream: Literal[True], **sampling: Any
    ) -> AsyncStream: ...
    def achat(
        self, messages: Sequence[Mapping[str, Any]], *, stream: bool = False, **sampling: Any
    ) -> Coroutine[Any, Any, Completion] | AsyncStream:
        """As `chat`, for asyncio: something to await, or with stream=True something to iterate over."""
        from emel.engine.asynchronous import AsyncStream, complete_async

        session = self._open()
        session.check_generates()
        checked_switch(stream, "stream")
        submit = partial(self.submit, self._chat_ids(messages, sampling))
        return AsyncStream(submit, sampling, session) if stream else complete_async(submit, sampling, session)

    def submit(self, prompt_ids: Iterable[int], listener: Listener, **options: Any) -> Request:
        """Has a prompt answered to a listener, in the midst of the others; returns at once. For any thread.

        RequestError for what is wrong with it, before anything is queued. `options` are the keywords of the class.
        """
        return submit_all(self._open(), prompt_ids, checked_listeners([listener]), options)[0]

    def submit_all(self, prompt_ids: Iterable[int], listeners: Sequence[Listener], **options: Any) -> list[Request]:
        """As `submit`, for n = len(listeners) answers to one prompt, which is computed once and shared."""
        heard = checked_listeners(listeners)
        return submit_all(self._open(), prompt_ids, heard, {**options, "n": len(heard)})

    def encode_chat(self, /, messages: Sequence[Mapping[str, Any]], **variables: Any) -> list[int]:
        """The token ids of a chat as the template writes it, ready for the assistant's answer."""
        session = self._open()
        with request_failures():
            return encode_chat(session.tokenizer, self.chat_template, checked_messages(messages), **variables)

    # ---- sessions in files

    def save_session(self, path: str | os.PathLike[str], token_ids: Iterable[int]) -> None:
        """Writes what is computed of these tokens to a file, for `load_session`; computes what is missing.

        The file can be read by its owner only: it tells what was said. Other requests wait meanwhile. RequestError, and
        what was at `path` is as before.
        """
        from emel.engine.saved_session import save_session

        session = self._open()
        save_session(session, checked_path(path), checked_prompt(token_ids, session.n_vocab, session.n_ctx))

    def load_session(self, path: str | os.PathLike[str]) -> list[int]:
        """Has prompts that begin with the tokens of a saved session find them computed; returns the tokens.

        RequestError for a file that is damaged, or of another model, numerics version or kv_type.
        """
        from emel.engine.saved_session import load_session

        return load_session(self._open(), checked_path(path))

    # ---- numbers

    def logits(self, token_ids: Iterable[int], *, chunk: int | None = None) -> NDArray[np.float32]:
        """Logits (n_tokens, n_vocab) float32 of every position.

        They are computed between two steps of the wave, `chunk` tokens at a time: the bits are the same for any.
        """
        import numpy

        session = self._open()
        session.check_generates()
        ids = checked_prompt(token_ids, session.n_vocab, session.n_ctx)
        wanted = len(ids) if chunk is None else checked_whole(chunk, "chunk")
        if wanted < 1:
            raise RequestError(f"chunk is {chunk}: 1 or more tokens are allowed")
        n_step = min(wanted, session.batch.capacity.max_outputs)
        out = numpy.empty((len(ids), session.n_vocab), dtype=numpy.float32)
        session.between_steps(lambda: all_logits(session, ids, n_step, out), len(ids))
        return out

    def measure(self, prompt_ids: Iterable[int], n_decode: int) -> Timings:
        """Times the engine alone: prefill of exactly these tokens (logits of the last), then greedy steps; no text."""
        session = self._open()
        session.check_generates()
        ids = checked_prompt(prompt_ids, session.n_vocab, session.n_ctx)
        if len(ids) + checked_count(n_decode, "n_decode") > session.n_ctx:
            raise RequestError(f"{len(ids)} tokens and {n_decode} more do not fit the context of {session.n_ctx}")
        return session.between_steps(lambda: timed(session, ids, n_decode), len(ids) + n_decode)

    def embed(
        self,
        texts: str | bytes | Iterable[str | bytes] | Iterable[int] | Iterable[Iterable[int]],
        *,
        pooling: str | None = None,
        normalize: bool = True,
    ) -> NDArray[np.float32]:
        """Embeddings (n_texts, width) float32 of texts or token ids: the same alone or in any list.

        One text, or one list of ids, gives one row. pooling: "mean", "cls" or "last" of the rows behind the last norm
        (None: the file's own, which encoders have, and models that write text if they were made for it); normalize:
        rows of length 1. Texts are tokenized with the model's special tokens, ids are taken as they are.
        """
        return self._open().embedders.embed(texts, pooling, checked_switch(normalize, "normalize"))

    # ---- life

    def close(self) -> None:
        """Gives all memory back once the step that may be running is over; requests not done fail. Harmless twice."""
        session, self._session = self._session, None
        if session is not None:
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
            raise closed_error()
        return self._session

    def _chat_ids(self, messages: Sequence[Mapping[str, Any]], options: dict[str, Any]) -> list[int]:
        """The ids of a chat; takes the template's variables out of the options."""
        variables = checked_template_variables(options.pop("chat_template_kwargs", None))
        return self.encode_chat(messages, **variables)

    def _encode(self, prompt: str | bytes) -> list[int]:
        return self._open().tokenizer.encode(checked_text(prompt), add_special=True, parse_special=False)
