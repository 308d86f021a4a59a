"""A file's bytes by the strategy that fits: mapped where the system can, copied where it cannot or is asked to.

1. AUTO maps, and copies when the file opens but cannot be mapped (some network and FUSE file systems).
2. Choosing is this machine's only work: opening, mapping and reading are those of `mapped` and `copied`.
3. Views of the bytes that callers still hold stay valid after Close.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING

from emel.io.copied import CloseCopy, CopyContext, CopyMachine, CopyState, OpenCopy
from emel.io.mapped import (
    Advise,
    CloseMapping,
    MappingContext,
    MappingMachine,
    MappingState,
    OpenMapping,
    VerifyMapping,
    is_inside,
)
from emel.io.platform import SYSTEM, Platform
from emel.lazy_dataclasses import dataclass
from emel.sm import Machine, Row

if TYPE_CHECKING:
    from emel.io.errors import SourceError


class Strategy(Enum):
    """How to get at a file's bytes."""

    AUTO = "auto"
    MAP = "map"
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class OpenSource:
    """Make the bytes of the file at path available."""

    path: str
    strategy: Strategy = Strategy.AUTO


@dataclass(frozen=True, slots=True)
class VerifySource:
    """Check that the bytes are still all there."""


@dataclass(frozen=True, slots=True)
class CloseSource:
    """Give the bytes up."""


class SourceState(Enum):
    """IDLE -> MAPPED or COPIED -> CLOSED, or FAILED with the context's error."""

    IDLE = "idle"
    MAPPING = "mapping"
    COPYING = "copying"
    MAPPED = "mapped"
    COPIED = "copied"
    VERIFYING = "verifying"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(slots=True)
class SourceContext:
    """The bytes are `view` in MAPPED and COPIED; `error` is set in FAILED."""

    platform: Platform = field(default_factory=lambda: SYSTEM)
    strategy: Strategy = Strategy.AUTO
    mapping: MappingMachine | None = None
    copy: CopyMachine | None = None
    view: memoryview | None = None
    error: SourceError | None = None


def asks_for_copy(_context: SourceContext, event: OpenSource) -> bool:
    """The caller wants a copy."""
    return event.strategy is Strategy.COPY


def is_mapped(context: SourceContext, _event: object) -> bool:
    """The mapping holds."""
    return context.mapping is not None and context.mapping.state is MappingState.MAPPED


def may_copy_instead(context: SourceContext, _event: object) -> bool:
    """The file opened but did not map, and the caller leaves the strategy open."""
    assert context.mapping is not None
    return context.strategy is Strategy.AUTO and context.mapping.context.n_bytes > 0


def is_copied(context: SourceContext, _event: object) -> bool:
    """The copy is complete."""
    return context.copy is not None and context.copy.state is CopyState.COPIED


def is_inside_mapping(context: SourceContext, event: Advise) -> bool:
    """The mapping takes this advice."""
    return context.mapping is not None and is_inside(context.mapping.context, event)


def open_mapping(context: SourceContext, event: OpenSource) -> None:
    """Maps the file."""
    context.strategy = event.strategy
    context.mapping = MappingMachine(MappingContext(platform=context.platform))
    context.mapping.dispatch(OpenMapping(event.path))


def open_copy(context: SourceContext, event: OpenSource) -> None:
    """Copies the file."""
    context.strategy = event.strategy
    context.mapping = None
    context.copy = CopyMachine(CopyContext(platform=context.platform))
    context.copy.dispatch(OpenCopy(event.path))


def publish_mapping(context: SourceContext, _event: object) -> None:
    """Shows the mapped bytes."""
    assert context.mapping is not None
    context.view = context.mapping.context.view


def publish_copy(context: SourceContext, _event: object) -> None:
    """Shows the copied bytes."""
    assert context.copy is not None
    context.view = context.copy.context.view


def keep_mapping_error(context: SourceContext, _event: object) -> None:
    """Reports why there is no mapping (any more)."""
    assert context.mapping is not None
    context.error, context.view = context.mapping.context.error, None
    if context.mapping.context.quarantined is None:
        context.mapping = None


def keep_copy_error(context: SourceContext, _event: object) -> None:
    """Reports why there is no copy."""
    assert context.copy is not None
    context.error = context.copy.context.error
    context.copy = None


def advise_mapping(context: SourceContext, event: Advise) -> None:
    """Passes the advice to the mapping."""
    assert context.mapping is not None
    context.mapping.dispatch(event)


def verify_mapping(context: SourceContext, _event: VerifySource) -> None:
    """Has the mapping compare its size with the file's."""
    assert context.mapping is not None
    context.mapping.dispatch(VerifyMapping())


def close_mapping(context: SourceContext, _event: CloseSource) -> None:
    """Drops the mapping; one in quarantine is kept."""
    assert context.mapping is not None
    context.view = None
    context.mapping.dispatch(CloseMapping())
    if context.mapping.context.quarantined is None:
        context.mapping = None


def close_copy(context: SourceContext, _event: CloseSource) -> None:
    """Drops the copy."""
    assert context.copy is not None
    context.view = None
    context.copy.dispatch(CloseCopy())
    context.copy = None


class SourceMachine(Machine[SourceState, SourceContext]):
    """One file's bytes, `context.view`, by one strategy."""

    INITIAL = SourceState.IDLE
    TERMINAL = frozenset({SourceState.FAILED, SourceState.CLOSED})
    FAILED = frozenset({SourceState.FAILED})
    # fmt: off
    TABLE = (
        #   source                 event         guard              effect              destination
        Row(SourceState.IDLE,      OpenSource,   asks_for_copy,     open_copy,          SourceState.COPYING),
        Row(SourceState.IDLE,      OpenSource,   None,              open_mapping,       SourceState.MAPPING),
        Row(SourceState.MAPPING,   None,         is_mapped,         publish_mapping,    SourceState.MAPPED),
        Row(SourceState.MAPPING,   None,         may_copy_instead,  open_copy,          SourceState.COPYING),
        Row(SourceState.MAPPING,   None,         None,              keep_mapping_error, SourceState.FAILED),
        Row(SourceState.COPYING,   None,         is_copied,         publish_copy,       SourceState.COPIED),
        Row(SourceState.COPYING,   None,         None,              keep_copy_error,    SourceState.FAILED),
        Row(SourceState.MAPPED,    Advise,       is_inside_mapping, advise_mapping,     SourceState.MAPPED),
        Row(SourceState.MAPPED,    VerifySource, None,              verify_mapping,     SourceState.VERIFYING),
        Row(SourceState.VERIFYING, None,         is_mapped,         None,               SourceState.MAPPED),
        Row(SourceState.VERIFYING, None,         None,              keep_mapping_error, SourceState.FAILED),
        Row(SourceState.MAPPED,    CloseSource,  None,              close_mapping,      SourceState.CLOSED),
        Row(SourceState.COPIED,    Advise,       None,              None,               SourceState.COPIED),
        Row(SourceState.COPIED,    VerifySource, None,              None,               SourceState.COPIED),
        Row(SourceState.COPIED,    CloseSource,  None,              close_copy,         SourceState.CLOSED),
    )
    # fmt: on
