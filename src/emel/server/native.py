"""POST /completion: what follows a prompt, in the words of llama.cpp's own server.

https://github.com/ggml-org/llama.cpp/tree/master/tools/server#post-completion-given-a-prompt-it-returns-the-predicted-completion
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emel.lazy_dataclasses import dataclass
from emel.server import sse
from emel.server.answering import respond
from emel.server.body import read_shape
from emel.server.choices import Job
from emel.server.constraints import constraint_of
from emel.server.errors import checked_tokens, invalid
from emel.server.generating import check_options, in_thread, settings_used, timings, transcript_of
from emel.server.holding import ready_model
from emel.server.logprobs import chat_logprobs
from emel.server.native_requests import NativeRequest
from emel.text.answers import PlainParser, TextPiece

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from emel.engine.model import Model
    from emel.engine.results import Chunk, Completion
    from emel.server.choices import Answer
    from emel.server.connection import EventStream
    from emel.server.errors import ApiError
    from emel.server.served_model import ServedModel
    from emel.text.answers import Piece
    from emel.text.constraint import Constraint

_NO_SLOT = -1  # lanes are given anew to each request


async def create_native_completion(request: Request) -> Response | EventStream:
    """The endpoint."""
    shape = await read_shape(request, NativeRequest)
    shape.check()
    served = await ready_model(request, shape.model)
    prompt_ids, new_constraint = await in_thread(request, _prepare, served, shape)
    jobs = [Job(prompt_ids, shape.sampling(), PlainParser, new_constraint)]
    return await respond(
        request,
        served,
        jobs,
        _Wording(served, served.model, shape, prompt_ids, new_constraint is not None, served.fingerprint),
        is_streamed=bool(shape.stream),
        has_progress=bool(shape.return_progress),
        ping_seconds=shape.ping_seconds,
    )


def _prepare(served: ServedModel, shape: NativeRequest) -> tuple[list[int], Callable[[], Constraint] | None]:
    """The prompt's ids, in which texts and ids may stand beside each other, and what makes the constraint."""
    check_options(served, shape.sampling())
    model, ids = served.model, list[int]()
    for index, part in enumerate([shape.prompt] if isinstance(shape.prompt, str) else shape.prompt):
        ids += model.tokenize(part, add_special=not index) if isinstance(part, str) else [part]
    if not ids:
        raise invalid("the prompt has no tokens: give at least one character", "prompt")
    return checked_tokens(ids, model.n_vocab, "prompt"), constraint_of(served, shape)


@dataclass(frozen=True, slots=True)
class _Wording:
    """llama.cpp's words for the answer to a prompt."""

    served: ServedModel
    model: Model  # of its own: others may unload it while a client that reads late is told
    shape: NativeRequest
    prompt_ids: list[int]
    is_constrained: bool
    fingerprint: str

    def whole(self, answers: list[Answer]) -> dict[str, Any]:
        [answer] = answers
        completion = answer.completion
        assert completion is not None
        content, tokens = "".join(answer.text), list(completion.token_ids)
        return {**self.part(content, tokens, answer.logprobs, len(tokens)), **self.ending(completion)}

    def telling(self, answers: list[Answer]) -> _Telling:
        del answers  # one
        return _Telling(self)

    def part(self, content: str, tokens: list[int], logprobs: list[Any], n_tokens: int) -> dict[str, Any]:
        part: dict[str, Any] = {
            "index": 0,
            "content": content,
            "tokens": tokens if self.shape.return_tokens else [],
            "stop": False,
            "id_slot": _NO_SLOT,
            "tokens_predicted": n_tokens,
            "tokens_evaluated": len(self.prompt_ids),
        }
        if self.shape.n_probs and logprobs:
            told = chat_logprobs(self.model.tokenizer, logprobs)["content"]
            if told:
                part["completion_probabilities"] = told
        return part

    def ending(self, completion: Completion) -> dict[str, Any]:
        return {
            "stop": True,
            "model": self.served.name,
            "system_fingerprint": self.fingerprint,
            "prompt": self.model.detokenize(self.prompt_ids),
            "generation_settings": settings_used(completion),
            "truncated": False,  # a prompt that does not fit is refused
            "has_new_line": "\n" in completion.text,
            "stop_type": _stop_type(completion),
            "stopping_word": completion.stop or "",
            "tokens_cached": completion.n_cached_tokens,
            "timings": timings(completion),
            **self._transcript(completion),
        }

    def _transcript(self, completion: Completion) -> dict[str, Any]:
        if not self.shape.transcript:
            return {}
        is_constrained = self.is_constrained
        return {"transcript": transcript_of(self.model, self.prompt_ids, completion, is_constrained=is_constrained)}


class _Telling:
    """The same as it comes, part by part."""

    def __init__(self, wording: _Wording) -> None:
        self._wording = wording
        self._n_tokens = 0

    def opening(self) -> bytes:
        return b""

    def progress(self, progress: dict[str, int]) -> bytes:
        return sse.event({**self._wording.part("", [], [], 0), "prompt_progress": progress})

    def events(self, answer: Answer, pieces: Sequence[Piece], chunk: Chunk) -> bytes:
        del answer  # the one there is
        content = "".join([piece.text for piece in pieces if isinstance(piece, TextPiece)])
        self._n_tokens += len(chunk.token_ids)
        part = self._wording.part(content, list(chunk.token_ids), chunk.logprobs or [], self._n_tokens)
        if chunk.completion is not None:
            return sse.event({**part, **self._wording.ending(chunk.completion)})
        return sse.event(part) if content or "completion_probabilities" in part else b""

    def ending(self) -> bytes:
        return b""

    def failed(self, error: ApiError) -> bytes:
        return sse.event(error.body)


def _stop_type(completion: Completion) -> str:
    if completion.finish_reason == "stop":
        return "eos" if completion.stop is None else "word"
    return "limit" if completion.finish_reason == "length" else "none"
