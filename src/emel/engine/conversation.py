"""Conversation: messages and answers in turns, each computed after what the turns before left behind.

It holds no lane and no memory of its own while nobody talks: every turn sends the whole conversation, and finds it in
the prefix store up to the new message. Where others needed the memory in between, it is computed again, with the same
bits.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from emel.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from emel.engine.model import Model
    from emel.engine.results import Chunk, Completion
    from emel.engine.stream import Stream


class Conversation:
    """A chat that remembers; one turn at a time. `messages` may be looked at and changed between turns."""

    def __init__(self, model: Model, system: str | None, options: Mapping[str, Any]) -> None:
        self._model = model
        self._options = dict(options)
        self.messages: list[dict[str, Any]] = [] if system is None else [{"role": "system", "content": system}]

    def send(self, text: str, **options: Any) -> Completion:
        """The answer to a message; both become part of the conversation. `options` add to those of the conversation.

        A message that fails or is refused does not become part of it.
        """
        completion = self._model.chat(self._messages_with(text), stream=False, **{**self._options, **options})
        self._remember(text, completion.text)
        return completion

    def stream(self, text: str, **options: Any) -> Generator[Chunk]:
        """The answer chunk by chunk. What was read when the iterator is closed becomes part of the conversation."""
        stream = self._model.chat(self._messages_with(text), stream=True, **{**self._options, **options})
        return self._read(text, stream)

    def _read(self, text: str, stream: Stream) -> Generator[Chunk]:
        read: list[str] = []
        with closing(stream):
            try:
                for chunk in stream:
                    read.append(chunk.text)
                    yield chunk
            except RequestError:
                read.clear()
                raise
            finally:
                if read:
                    self._remember(text, "".join(read))

    def _messages_with(self, text: str) -> list[dict[str, Any]]:
        return [*self.messages, {"role": "user", "content": text}]

    def _remember(self, text: str, answer: str) -> None:
        self.messages += [{"role": "user", "content": text}, {"role": "assistant", "content": answer}]
