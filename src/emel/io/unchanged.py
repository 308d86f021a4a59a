"""The files of a model that is read all the time: whether one was written to since they were opened.

A read meets the end of a file that is shorter now. One that was cut and filled up again, or written over, gives other
bytes without an error; its time of modification tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.io.descriptor import reason_of
from emel.io.errors import SourceError
from emel.io.parts import close_parts, open_parts
from emel.io.platform import SYSTEM, Platform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emel.io.parts import FilePart


class UnchangedFiles:
    """Opens `parts`, which must have the sizes they were parsed with; SourceError, and nothing stays open then."""

    def __init__(self, parts: Sequence[FilePart], *, platform: Platform = SYSTEM) -> None:
        self._platform = platform
        self._opened = open_parts(platform, parts)
        try:
            self._seen = [self._look(index) for index in range(len(self._opened))]
        except BaseException:
            self.close()
            raise

    def check(self) -> None:
        """SourceError naming a file that was written to: what was read of it cannot be trusted from then on."""
        for index, seen in enumerate(self._seen):
            if self._look(index) != seen:
                raise SourceError(
                    f"{self._opened[index].path!r} was written to while it was in use: load the model again"
                )

    def close(self) -> None:
        """Gives the files up; harmless when repeated, after which nothing is checked."""
        opened, self._opened, self._seen = self._opened, (), []
        close_parts(self._platform, opened)

    def _look(self, index: int) -> tuple[int, int]:
        part = self._opened[index]
        try:
            status = self._platform.status(part.file.descriptor)
        except OSError as error:
            raise SourceError(f"cannot look at {part.path!r}: {reason_of(error)}") from error
        return status.st_size, status.st_mtime_ns
