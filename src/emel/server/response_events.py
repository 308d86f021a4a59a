"""The events of a streamed response: items that begin, grow and end, numbered through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emel.server import sse
from emel.server.generating import new_id
from emel.server.response_items import call_item, message_item, reasoning_item, reasoning_part, status_of, text_part
from emel.text.answers import CallArguments, CallBegun, ReasoningPiece, TextPiece, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emel.text.answers import Piece


class ResponseEvents:
    """Makes events out of pieces. An item ends where the kind of the pieces changes."""

    def __init__(self) -> None:
        self.output: list[dict[str, Any]] = []
        """Items that are whole."""
        self._n_events = 0
        self._open: type[Piece] | None = None
        self._item_id = ""
        self._call_id, self._name = "", ""  # of a call
        self._text: list[str] = []

    def event(self, kind: str, **fields: Any) -> bytes:
        """An event with the next number."""
        body = sse.event({"type": kind, "sequence_number": self._n_events, **fields}, kind)
        self._n_events += 1
        return body

    def of_pieces(self, pieces: Sequence[Piece]) -> Iterator[bytes]:
        """The events of pieces."""
        for piece in pieces:
            if isinstance(piece, CallBegun):
                yield from self.close()
                yield from self._begin_call(piece)
            elif isinstance(piece, CallArguments):
                self._text.append(piece.text)
                yield self.event("response.function_call_arguments.delta", **self._place, delta=piece.text)
            else:
                if type(piece) is not self._open:
                    yield from self.close()
                    yield from self._begin(type(piece))
                self._text.append(piece.text)
                yield self.event(f"response.{self._noun}.delta", **self._place, content_index=0, delta=piece.text)

    def close(self) -> Iterator[bytes]:
        """Ends the item that is open, if one is."""
        if self._open is None:
            return
        if self._open is CallBegun:
            yield from self._end_call()
            return
        text = "".join(self._text)
        is_text = self._open is TextPiece
        item = message_item(self._item_id, text) if is_text else reasoning_item(self._item_id, text)
        yield self.event(f"response.{self._noun}.done", **self._place, content_index=0, text=text)
        part = text_part(text) if is_text else reasoning_part(text)
        yield self.event("response.content_part.done", **self._place, content_index=0, part=part)
        yield self.event("response.output_item.done", output_index=len(self.output), item=item)
        self.output.append(item)
        self._open = None

    @property
    def _noun(self) -> str:
        return "output_text" if self._open is TextPiece else "reasoning_text"

    @property
    def _place(self) -> dict[str, Any]:
        place: dict[str, Any] = {"item_id": self._item_id, "output_index": len(self.output)}
        return {**place, "logprobs": []} if self._open is TextPiece else place

    def _begin(self, kind: type[Piece]) -> Iterator[bytes]:
        self._open, self._text = kind, []
        is_reasoning = kind is ReasoningPiece
        self._item_id = new_id("rs_" if is_reasoning else "msg_")
        new_item = reasoning_item if is_reasoning else message_item
        item = new_item(self._item_id, None, "in_progress")
        yield self.event("response.output_item.added", output_index=len(self.output), item=item)
        part = reasoning_part("") if is_reasoning else text_part("")
        place = {"item_id": self._item_id, "output_index": len(self.output)}
        yield self.event("response.content_part.added", **place, content_index=0, part=part)

    def _begin_call(self, piece: CallBegun) -> Iterator[bytes]:
        self._open, self._text = CallBegun, []
        self._item_id, self._call_id, self._name = new_id("fc_"), new_id("call_"), piece.name
        item = call_item(self._item_id, self._call_id, ToolCall(piece.name, ""), "in_progress")
        yield self.event("response.output_item.added", output_index=len(self.output), item=item)

    def _end_call(self) -> Iterator[bytes]:
        call = ToolCall(self._name, "".join(self._text))
        item = call_item(self._item_id, self._call_id, call, status_of(call))
        told = {"name": call.name, "arguments": call.arguments}
        yield self.event("response.function_call_arguments.done", **self._place, **told)
        yield self.event("response.output_item.done", output_index=len(self.output), item=item)
        self.output.append(item)
        self._open = None
