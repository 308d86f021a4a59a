"""Trace files: JSON lines to search, and Trace Event JSON to look at in Perfetto or chrome://tracing.

The second follows the array form of the Trace Event Format, whose closing bracket is optional, so that the file of a
process that died can still be opened.
"""

from __future__ import annotations

import json
import os
import threading
from abc import ABC, abstractmethod
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType

    from emel.sm.trace import Transition


class _TraceFile(ABC):
    """A file opened for writing (an existing one is replaced) that takes transitions from any thread until closed."""

    _HEAD = ""
    _TAIL = ""
    _SEPARATOR = ""
    _END = ""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = Path(path).open("w", encoding="utf-8")  # noqa: SIM115 - closed by close()
        self._lock = threading.Lock()
        self._n_written = 0
        self._file.write(self._HEAD)

    def __call__(self, transition: Transition) -> None:
        text = json.dumps(self._record(transition), separators=(",", ":"))
        with self._lock:
            self._file.write((self._SEPARATOR if self._n_written else "") + text + self._END)
            self._n_written += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Completes and closes the file; again is harmless."""
        with self._lock:
            if not self._file.closed:
                self._file.write(self._TAIL)
                self._file.close()

    @abstractmethod
    def _record(self, transition: Transition) -> dict[str, Any]:
        """What is written for `transition`."""


class JsonLines(_TraceFile):
    """One JSON object a line, with the fields of `Transition`."""

    _END = "\n"

    def _record(self, transition: Transition) -> dict[str, Any]:
        return asdict(transition)


class PerfettoTrace(_TraceFile):
    """One complete slice (`"ph": "X"`, microseconds) a transition; a dispatch from within an effect lies inside it."""

    _HEAD = "[\n"
    _TAIL = "\n]\n"
    _SEPARATOR = ",\n"

    def _record(self, transition: Transition) -> dict[str, Any]:
        return {
            "name": f"{transition.machine}: {transition.source} -> {transition.destination}",
            "cat": transition.machine,
            "ph": "X",
            "ts": transition.begin_ns / 1000,
            "dur": transition.duration_ns / 1000,
            "pid": os.getpid(),
            "tid": transition.thread_id,
            "args": {
                "event": transition.event,
                "is_completion": transition.is_completion,
                "guard": transition.guard,
                "effect": transition.effect,
                "context_index": transition.context_index,
                "error": transition.error,
            },
        }


PERFETTO_SUFFIXES = (".json", ".perfetto")


def open_trace(path: str | os.PathLike[str]) -> JsonLines | PerfettoTrace:
    """A trace file of the kind its suffix asks for: PERFETTO_SUFFIXES (any case), else JSON lines."""
    return PerfettoTrace(path) if Path(path).suffix.lower() in PERFETTO_SUFFIXES else JsonLines(path)
