"""The machine that turns a path into parsed contents over live bytes, and gives them up again.

1. One machine reads one file once; FAILED and CLOSED are final.
2. Nothing stays open on a failure.
3. Verify is for just before bytes are touched: a file that shrank is an error then, not a crash.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING

from emel.gguf.errors import GgufError
from emel.gguf.parser import GgufContents, parse
from emel.io.mapped import Advise
from emel.io.platform import SYSTEM, Platform
from emel.io.source import (
    CloseSource,
    OpenSource,
    SourceContext,
    SourceMachine,
    SourceState,
    Strategy,
    VerifySource,
)
from emel.lazy_dataclasses import dataclass
from emel.sm import Machine, Row

if TYPE_CHECKING:
    from emel.io.errors import SourceError


@dataclass(frozen=True, slots=True)
class ReadFile:
    """Open and parse the file at path."""

    path: str
    strategy: Strategy = Strategy.AUTO


@dataclass(frozen=True, slots=True)
class VerifyFile:
    """Check that the file's bytes are still all there."""


@dataclass(frozen=True, slots=True)
class PrefetchTensors:
    """Have the system read the tensor data ahead: it will be used soon, front to back."""


@dataclass(frozen=True, slots=True)
class CloseFile:
    """Give the file up."""


class ReaderState(Enum):
    """IDLE -> READY -> CLOSED, or FAILED with the context's error."""

    IDLE = "idle"
    OPENED = "opened"
    PARSED = "parsed"
    READY = "ready"
    VERIFIED = "verified"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(slots=True)
class ReaderContext:
    """`contents` and the source's bytes are there in READY; `error` is set in FAILED."""

    platform: Platform = field(default_factory=lambda: SYSTEM)
    path: str = ""
    source: SourceMachine | None = None
    contents: GgufContents | None = None
    error: SourceError | GgufError | None = None

    @property
    def view(self) -> memoryview | None:
        """The file's bytes, in READY."""
        return self.source.context.view if self.source is not None else None


def has_failed(context: ReaderContext, _event: object) -> bool:
    """The last effect could not do its work."""
    return context.error is not None


def has_tensor_data(context: ReaderContext, _event: object) -> bool:
    """There are bytes after the head."""
    assert context.contents is not None
    assert context.view is not None
    return context.contents.data_start < len(context.view)


def open_source(context: ReaderContext, event: ReadFile) -> None:
    """Opens the file's bytes."""
    context.path = event.path
    context.source = SourceMachine(SourceContext(platform=context.platform))
    context.source.dispatch(OpenSource(event.path, event.strategy))
    context.error = context.source.context.error


def parse_bytes(context: ReaderContext, _event: ReadFile) -> None:
    """Parses them."""
    view = context.view
    assert view is not None
    try:
        context.contents = parse(view)
    except GgufError as error:
        context.error = GgufError(f"{context.path!r}: {error}")


def keep_contents(context: ReaderContext, _event: ReadFile) -> None:
    """Copies the metadata's arrays, so that they outlive the file and never touch a mapping that shrank."""
    assert context.contents is not None
    context.contents = context.contents.detached()


def verify_source(context: ReaderContext, _event: VerifyFile) -> None:
    """Has the source check its file."""
    assert context.source is not None
    context.source.dispatch(VerifySource())
    context.error = context.source.context.error


def advise_source(context: ReaderContext, _event: PrefetchTensors) -> None:
    """Tells the source what will be read."""
    assert context.source is not None
    assert context.contents is not None
    assert context.view is not None
    start = context.contents.data_start
    context.source.dispatch(Advise("willneed", start, len(context.view) - start))


def release(context: ReaderContext, _event: object) -> None:
    """Drops contents and bytes; a source that failed has released its bytes itself."""
    context.contents = None
    source, context.source = context.source, None
    if source is not None and source.state is not SourceState.FAILED:
        source.dispatch(CloseSource())


class ReaderMachine(Machine[ReaderState, ReaderContext]):
    """Reads one GGUF file."""

    INITIAL = ReaderState.IDLE
    TERMINAL = frozenset({ReaderState.FAILED, ReaderState.CLOSED})
    FAILED = frozenset({ReaderState.FAILED})
    # fmt: off
    TABLE = (
        #   source                event            guard            effect         destination
        Row(ReaderState.IDLE,     ReadFile,        None,            open_source,   ReaderState.OPENED),
        Row(ReaderState.OPENED,   None,            has_failed,      release,       ReaderState.FAILED),
        Row(ReaderState.OPENED,   None,            None,            parse_bytes,   ReaderState.PARSED),
        Row(ReaderState.PARSED,   None,            has_failed,      release,       ReaderState.FAILED),
        Row(ReaderState.PARSED,   None,            None,            keep_contents, ReaderState.READY),
        Row(ReaderState.READY,    PrefetchTensors, has_tensor_data, advise_source, ReaderState.READY),
        Row(ReaderState.READY,    PrefetchTensors, None,            None,          ReaderState.READY),
        Row(ReaderState.READY,    VerifyFile,      None,            verify_source, ReaderState.VERIFIED),
        Row(ReaderState.VERIFIED, None,            has_failed,      release,       ReaderState.FAILED),
        Row(ReaderState.VERIFIED, None,            None,            None,          ReaderState.READY),
        Row(ReaderState.READY,    CloseFile,       None,            release,       ReaderState.CLOSED),
    )
    # fmt: on
